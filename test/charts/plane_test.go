package charts_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	// eventually bounds every wait for a cluster; it is generous, because a slow machine is no fault.
	eventually = 2 * time.Minute
	pollEvery  = 200 * time.Millisecond
	// stopTimeout bounds how long a controller may take to end.
	stopTimeout = 30 * time.Second
)

// plane is a control plane for one test, with the helm program that installs into it.
type plane struct {
	*localplane.Plane
	helm   chart.Helm
	client client.Client
}

func startPlane(t *testing.T, o localplane.Options) plane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	bin, err := toolchain.Ensure(ctx, os.Stderr, o.Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	o.Bin = bin
	o.APIServerArgs = append(o.APIServerArgs, localplane.WithoutFairness)
	p, err := localplane.Start(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	for _, add := range []func() error{
		func() error { return mckubev1alpha1.AddToScheme(scheme.Scheme) },
		func() error { return mcoperatorv1.AddToScheme(scheme.Scheme) },
		func() error { return kcloudv1alpha1.AddToScheme(scheme.Scheme) },
		func() error { return apiextensionsv1.AddToScheme(scheme.Scheme) },
	} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(p.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	h := helm(t)
	h.Kubeconfig = p.Kubeconfig()
	return plane{Plane: p, helm: h, client: c}
}

// install installs or upgrades and returns what helm printed.
func (p plane) install(t *testing.T, r chart.Release) string {
	t.Helper()
	out, err := p.helm.Install(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (p plane) apply(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (p plane) delete(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := client.IgnoreNotFound(p.client.Delete(t.Context(), o)); err != nil {
			t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
		}
	}
}

// soon waits until the assertions hold.
func soon(t *testing.T, assertions func(g gomega.Gomega)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(assertions).WithTimeout(eventually).WithPolling(pollEvery).Should(gomega.Succeed())
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := process.FreePorts(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// runController runs the controller as the chart would, with flags in addition, until the test ends, and
// returns the path of its log.
func (p plane) runController(t *testing.T, manifests chart.Manifests, flags ...string) string {
	t.Helper()
	i, err := chart.ControllerInvocation(manifests)
	if err != nil {
		t.Fatal(err)
	}
	i.Args = append(i.Args, flags...)
	return p.run(t, controllerBinary(t), i)
}

// runHollow does the same with the agents of simulated nodes.
func (p plane) runHollow(t *testing.T, manifests chart.Manifests) {
	t.Helper()
	i, err := chart.HollowInvocation(manifests)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := buildHollow()
	if err != nil {
		t.Fatal(err)
	}
	p.run(t, binary, i)
}

func (p plane) run(t *testing.T, binary string, i chart.Invocation) string {
	t.Helper()
	kubeconfig, err := p.KubeconfigFor(t.Context(), i.Namespace, i.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(binary)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, i.Args...)
	if filepath.Base(binary) == "hollow" {
		cmd.Args = append(cmd.Args, "--kubeconfig="+kubeconfig)
	}
	cmd.Env = append(i.Env, "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopController(t, cmd, log) })
	return log.Name()
}

func stopController(t *testing.T, cmd *exec.Cmd, log *os.File) {
	t.Helper()
	defer log.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("ending the controller: %v", err)
	}
	kill := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v:\n%s", filepath.Base(cmd.Path), err, tail(t, log.Name()))
	}
}

func tail(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
