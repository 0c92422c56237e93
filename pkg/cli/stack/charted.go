package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/localagent"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// startWithNodes installs the charts, starts the controller, the agents of simulated nodes and the real nodes, and waits until all are ready.
func (s *Stack) startWithNodes(ctx context.Context, o Options, controller, hollow string, agents localagent.Binaries, cores []string) error {
	ports, err := process.FreePorts(ctx, 4)
	if err != nil {
		return err
	}
	manifests, err := s.installCharts(ctx, o, ports[3])
	if err != nil {
		return err
	}
	hollowRun, err := chart.HollowInvocation(manifests)
	if err != nil {
		return err
	}
	if s.hollow, err = s.launchCharted(ctx, o, hollowProgram, hollow, hollowRun, append([]string{
		fmt.Sprintf("--health-probe-port=%d", ports[0]),
	}, catalogueArgs(o.ControllerArgs)...)); err != nil {
		return err
	}
	controllerRun, err := chart.ControllerInvocation(manifests)
	if err != nil {
		return err
	}
	if s.controller, err = s.launchCharted(ctx, o, controllerProgram, controller, controllerRun, append([]string{
		"--feature-gates=" + featureGates, "--disable-leader-election", fmt.Sprintf("--health-probe-port=%d", ports[1]),
		fmt.Sprintf("--metrics-port=%d", ports[2]), fmt.Sprintf("--webhook-port=%d", ports[3]), "--webhook-host=127.0.0.1",
		"--webhook-dns-names=" + webhookHost,
	}, o.ControllerArgs...)); err != nil {
		return err
	}
	if err := waitReady(ctx, o.Clock, s.hollow, readyURL(ports[0])); err != nil {
		return err
	}
	if err := waitReady(ctx, o.Clock, s.controller, readyURL(ports[1])); err != nil {
		return err
	}
	return s.startNodes(ctx, o, manifests, agents, cores)
}

// installCharts installs both charts of the checkout by helm, has the API server call the webhooks of a controller that runs beside it, and returns
// what the second chart renders.
func (s *Stack) installCharts(ctx context.Context, o Options, webhookPort int) (chart.Manifests, error) {
	bin, err := toolchain.Ensure(ctx, o.Progress, toolchain.Helm)
	if err != nil {
		return nil, fmt.Errorf("providing helm: %w", err)
	}
	root, err := toolchain.FindRoot(".")
	if err != nil {
		return nil, fmt.Errorf("finding the charts: %w", err)
	}
	helm := chart.Helm{Program: bin[toolchain.Helm], Kubeconfig: s.plane.Kubeconfig()}
	release := func(name string, values map[string]any) chart.Release {
		return chart.Release{Name: name, Namespace: systemNamespace, Chart: filepath.Join(root, "charts", name), Values: values}
	}
	main := release("mainspring", map[string]any{
		"agent":    map[string]any{"enabled": true, "checkpoint": map[string]any{"enabled": true}},
		"settings": map[string]any{"realtime": map[string]any{"budgetGranularity": budgetGranularity}},
	})
	for _, r := range []chart.Release{release("mainspring-crds", nil), main} {
		fmt.Fprintf(o.Progress, "installing chart %s\n", r.Name)
		if _, err := helm.Install(ctx, r); err != nil {
			return nil, err
		}
	}
	manifests, err := helm.Template(ctx, main)
	if err != nil {
		return nil, err
	}
	c, err := client.New(s.plane.RESTConfig(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	if err := deletePods(ctx, c, manifests); err != nil {
		return nil, err
	}
	return manifests, chart.UseWebhooksAt(ctx, c, fmt.Sprintf("https://%s:%d", webhookHost, webhookPort))
}

// deletePods deletes what the chart runs as pods: here it runs as processes.
func deletePods(ctx context.Context, c client.Client, manifests chart.Manifests) error {
	for _, m := range manifests {
		var o client.Object
		switch m.GetKind() {
		case "Deployment":
			o = &appsv1.Deployment{}
		case "DaemonSet":
			o = &appsv1.DaemonSet{}
		default:
			continue
		}
		o.SetName(m.GetName())
		o.SetNamespace(m.GetNamespace())
		if err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s of the chart: %w", m.GetKind(), m.GetName(), err)
		}
	}
	return nil
}

// webhookHost is the name by which the API server calls webhooks, which their certificate is for.
const webhookHost = "localhost"

// launchCharted starts a program as the chart runs it, with flags in place of the chart's.
func (s *Stack) launchCharted(ctx context.Context, o Options, p program, binary string, i chart.Invocation, flags []string) (*process.Process, error) {
	kubeconfig, err := s.plane.KubeconfigFor(ctx, i.Namespace, i.ServiceAccount)
	if err != nil {
		return nil, err
	}
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KUBECONFIG=") {
			env = append(env, variable)
		}
	}
	return s.launch(o, p, binary, chart.Override(chart.Override(i.Args, flags...), "--kubeconfig="+kubeconfig), append(env, i.Env...))
}
