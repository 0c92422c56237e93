package environment

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	// chartNamespace is where the charts are installed.
	chartNamespace = "mainspring-system"
	// metricsReader is the ServiceAccount that the chart lets read the metrics.
	metricsReader = "prometheus"
)

// StartCharted brings up one more environment, in which both charts are installed by helm and the
// controller runs with exactly the arguments, the environment and the permissions that the chart
// gives it. It shares the controller binary, and ends with the container of specs that starts it.
func (env *Environment) StartCharted() *Environment {
	GinkgoHelper()
	charted := &Environment{}
	charted.Context, charted.cancel = context.WithCancel(env)
	DeferCleanup(charted.cancel)
	charted.Plane = env.expectPlane(localplane.Options{
		Scheduler: true, ControllerManager: true, Kwok: true, NodeMonitorGracePeriod: nodeGrace,
	})
	charted.dir = charted.Plane.Dir()
	charted.connect()
	charted.standing, charted.Agents = env.standing, &Program{}
	manifests := charted.installCharts(fixedPorts(env))
	charted.useChart(env.Controller.binary, manifests)
	DeferCleanup(func() { Expect(charted.Controller.Stop()).To(Succeed()) })
	return charted
}

// installCharts installs both charts as a user does, with more values for the second, and returns what
// that renders.
func (env *Environment) installCharts(more map[string]any) chart.Manifests {
	GinkgoHelper()
	bin, err := toolchain.Ensure(env, GinkgoWriter, toolchain.Helm)
	Expect(err).NotTo(HaveOccurred())
	root, err := toolchain.FindRoot(".")
	Expect(err).NotTo(HaveOccurred())
	helm := chart.Helm{Program: bin[toolchain.Helm], Kubeconfig: env.Plane.Kubeconfig()}
	release := func(name string, values map[string]any) chart.Release {
		return chart.Release{Name: name, Namespace: chartNamespace, Chart: filepath.Join(root, "charts", name), Values: values}
	}
	_, err = helm.Install(env, release("mainspring-crds", nil))
	Expect(err).NotTo(HaveOccurred())
	main := release("mainspring", lo.Assign(chartValues(), more))
	_, err = helm.Install(env, main)
	Expect(err).NotTo(HaveOccurred())
	manifests, err := helm.Template(env, main)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error { return env.Client.List(env, &mckubev1alpha1.SimulatedFaultList{}) }).Should(Succeed(), "the definitions should be served")
	// What the Deployments say is run as processes. Their pods would wait for nodes.
	Expect(env.Client.DeleteAllOf(env, &appsv1.Deployment{}, client.InNamespace(chartNamespace))).To(Succeed())
	return manifests
}

// chartValues are the chart's defaults, but name who reads the metrics.
func chartValues() map[string]any {
	return map[string]any{"metrics": metricsValues(nil)}
}

func metricsValues(more map[string]any) map[string]any {
	return lo.Assign(map[string]any{"readers": []any{map[string]any{"name": metricsReader, "namespace": chartNamespace}}}, more)
}

// fixedPorts are values for what a process on a shared machine cannot have: fixed ports.
func fixedPorts(ctx context.Context) map[string]any {
	GinkgoHelper()
	ports, err := process.FreePorts(ctx, 3)
	Expect(err).NotTo(HaveOccurred())
	return map[string]any{
		"metrics":     metricsValues(map[string]any{"port": ports[0]}),
		"healthProbe": map[string]any{"port": ports[1]},
		"webhook":     map[string]any{"port": ports[2]},
	}
}

// useChart makes the controller run as the chart says.
func (env *Environment) useChart(binary string, manifests chart.Manifests) {
	GinkgoHelper()
	invocation, err := chart.ControllerInvocation(manifests)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := env.Plane.KubeconfigFor(env, invocation.Namespace, invocation.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	env.Controller = &Program{
		name:       filepath.Base(binary),
		binary:     binary,
		kubeconfig: kubeconfig,
		logPath:    filepath.Join(env.dir, "controller.log"),
		environ:    append(invocation.Env, "KUBECONFIG="+kubeconfig),
		exact:      true,
		flags:      invocation.Args,
		health:     portOf(invocation.Args, "--health-probe-port"),
		metrics:    portOf(invocation.Args, "--metrics-port"),
	}
	env.defaults = invocation.Args
	Expect(env.Client.Create(env, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: metricsReader, Namespace: chartNamespace}})).To(Succeed())
	env.scraper = newScraper(env.TokenOf(chartNamespace, metricsReader))
}

func portOf(args []string, flag string) int {
	GinkgoHelper()
	for _, arg := range args {
		var port int
		if n, _ := fmt.Sscanf(arg, flag+"=%d", &port); n == 1 {
			return port
		}
	}
	Fail("the chart gives the controller no " + flag)
	return 0
}

// TokenOf returns a token of the ServiceAccount for the audiences; without any it is for the API server.
func (env *Environment) TokenOf(namespace, serviceAccount string, audiences ...string) string {
	GinkgoHelper()
	token, err := env.Plane.TokenFor(env, namespace, serviceAccount, audiences...)
	Expect(err).NotTo(HaveOccurred())
	return token
}

// AsController is the API server for the chart's ServiceAccount of the controller, of which some things are asked that nobody else may do.
func (env *Environment) AsController() client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + chartNamespace + ":mainspring", Groups: []string{"system:masters"}}
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// MetricsStatus is what the controller's metrics endpoint answers to the bearer of the token; an
// empty token is sent none.
func (env *Environment) MetricsStatus(token string) int {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(env, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", env.Controller.metrics), nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := env.scraper.client.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	return resp.StatusCode
}

// ExpectNothingForbidden expects that the API server has refused the controller nothing since its
// first start.
func (env *Environment) ExpectNothingForbidden() {
	GinkgoHelper()
	for line := range strings.Lines(env.Controller.logSince(0)) {
		Expect(strings.ToLower(line)).NotTo(ContainSubstring("forbidden"))
	}
}
