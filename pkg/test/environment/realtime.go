package environment

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/promises"
)

const (
	healthFlag  = "--health-probe-port"
	metricsFlag = "--metrics-port"
	webhookFlag = "--webhook-port"
)

// StartRealtime is Start for scenarios about real-time admission. Both charts are installed by helm;
// the controller and the agents of the simulated nodes run with the ServiceAccounts and the arguments
// that the chart gives them, but for the catalogue of machines and for delays, which are shorter; and
// the API server reaches the webhooks. flags are further ones of the controller.
func StartRealtime(data []byte, catalogue string, flags ...string) *Environment {
	GinkgoHelper()
	return StartRealtimeWith(data, catalogue, map[string]any{}, flags...)
}

// StartRealtimeWith is StartRealtime with values of the chart. Gates are given by flags all the same, of each scenario; the rights that a
// gate brings are the chart's.
func StartRealtimeWith(data []byte, catalogue string, values map[string]any, flags ...string) *Environment {
	GinkgoHelper()
	env, ready := prepare(data)
	manifests := env.startCharted(ready, catalogue, values)
	env.defaults = chart.Override(env.defaults, flags...)
	env.useAgents(ready.program(programs.Agents), catalogue, manifests)
	return env
}

// startCharted brings up a control plane with the charts, their controller and its webhooks.
func (env *Environment) startCharted(ready prepared, catalogue string, values map[string]any) chart.Manifests {
	GinkgoHelper()
	recorded, args := newAudit(env.dir)
	env.audit = recorded
	env.startPlane(ready, args...)
	manifests := env.installCharts(values)
	env.useRealtimeController(ready.program(programs.Controller), catalogue, manifests)
	env.expectWebhooks()
	return manifests
}

// RealtimeFlags are what scenarios change of the chart's arguments: shorter delays, and no leader
// election, whose lease would outlive a kill.
func RealtimeFlags() []string {
	return append(DefaultFlags(), "--rt-preemption-delay=2s", "--rt-calibration-timeout=30s")
}

// ProductBatches are, of flags that RealtimeFlags change, those for how long pods are collected, as the chart has them.
func (env *Environment) ProductBatches() []string {
	return slices.DeleteFunc(slices.Clone(env.charted), func(flag string) bool { return !strings.HasPrefix(flag, "--batch-") })
}

// RealtimeElectionFlags let replicas of the controller agree on a leader.
func RealtimeElectionFlags() []string { return []string{"--disable-leader-election=false"} }

func (env *Environment) useRealtimeController(binary, catalogue string, manifests chart.Manifests) {
	GinkgoHelper()
	invocation, err := chart.ControllerInvocation(manifests)
	Expect(err).NotTo(HaveOccurred())
	env.Controller = env.chartProgram(binary, invocation)
	env.service, err = newService(env)
	Expect(err).NotTo(HaveOccurred())
	args := chart.Without(invocation.Args, healthFlag, metricsFlag)
	env.charted = args
	env.defaults = chart.Override(chart.Override(args, RealtimeFlags()...), "--catalogue-file="+catalogue, "--webhook-dns-names="+webhookHost, env.webhookPort())
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: metricsReader, Namespace: chartNamespace}}
	Expect(env.Client.Create(env, reader)).To(Succeed())
	env.scraper = newScraper(env.TokenOf(chartNamespace, metricsReader))
}

// webhookPort is the flag that lets one more replica serve webhooks, on a port of its own.
func (env *Environment) webhookPort() string {
	GinkgoHelper()
	ports, err := process.FreePorts(env, 1)
	Expect(err).NotTo(HaveOccurred())
	env.service.add(ports[0])
	return fmt.Sprintf("%s=%d", webhookFlag, ports[0])
}

func (env *Environment) useAgents(binary, catalogue string, manifests chart.Manifests) {
	GinkgoHelper()
	invocation, err := chart.HollowInvocation(manifests)
	Expect(err).NotTo(HaveOccurred())
	env.Agents = env.chartProgram(binary, invocation)
	env.agentFlags = chart.Override(chart.Without(invocation.Args, healthFlag, metricsFlag), "--catalogue-file="+catalogue)
}

// chartProgram runs the binary as whom the chart runs it, and in the environment that it gives.
func (env *Environment) chartProgram(binary string, invocation chart.Invocation) *Program {
	GinkgoHelper()
	kubeconfig, err := env.Plane.KubeconfigFor(env, invocation.Namespace, invocation.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	program, err := newProgram(env, binary, kubeconfig, env.dir)
	Expect(err).NotTo(HaveOccurred())
	program.environ = append(program.environ, invocation.Env...)
	return program
}

// expectWebhooks has the API server call the webhooks of the environment's controller.
func (env *Environment) expectWebhooks() {
	GinkgoHelper()
	Expect(chart.UseWebhooksAt(env, env.Client, env.service.url())).To(Succeed())
}

// Forbids has a refusal in these words, of a policy that the spec applies, be no right that is missing.
func (env *Environment) Forbids(words string) { env.forbids = strings.ToLower(words) }

// ExpectPromisesKept expects that, on every version of every object since the spec began, real-time
// admission kept what it promises, that neither program deleted a pod but by the Eviction API, unless its node was dead, and
// that the API server refused neither a right.
func (env *Environment) ExpectPromisesKept() {
	GinkgoHelper()
	if env.recorder == nil {
		return
	}
	h, _ := env.HistoryWithGaps()
	Expect(promises.Broken(h)).To(BeEmpty())
	Expect(env.audit.others(env.deceased(h))).To(BeEmpty(), "pods deleted without the Eviction API")
	Expect(env.Agents.Crash()).To(Succeed())
	Expect(env.Agents.troubleSince(env.agentsStart)).To(BeEmpty())
	if env.outage {
		return // an API server that has just come back knows no roles yet
	}
	for _, log := range []string{env.Controller.logSince(env.logStart), env.Agents.logSince(env.agentsStart)} {
		for line := range strings.Lines(log) {
			if line = strings.ToLower(line); env.forbids == "" || !strings.Contains(line, env.forbids) {
				Expect(line).NotTo(ContainSubstring("forbidden"))
			}
		}
	}
}

// ExpectDenied expects an admission webhook to refuse the object with a message that contains every text, once the webhook
// knows what the API server has. Nothing is stored until then.
func (env *Environment) ExpectDenied(o client.Object, texts ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		err := env.Client.Create(env, o.DeepCopyObject().(client.Object), client.DryRunAll)
		g.Expect(err).To(MatchError(func(err error) bool {
			return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
		}, "a refusal"))
		for _, text := range texts {
			g.Expect(err.Error()).To(ContainSubstring(text))
		}
	}).Should(Succeed())
	Expect(env.Client.Create(env, o.DeepCopyObject().(client.Object))).NotTo(Succeed(), "what was refused as a dry run")
}
