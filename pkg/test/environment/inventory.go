package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
)

// StartInventory is Start for scenarios about real machines: the controller switches those of InventoryMachines, by
// the programs in directory, and knows the labels by which pods may select them. Both charts are installed by helm; the
// controller runs with the ServiceAccount and the arguments that the chart gives it, but for that directory and for
// delays, which are shorter.
func StartInventory(data []byte, directory string, labels ...any) *Environment {
	GinkgoHelper()
	env, ready := prepare(data)
	env.startPlane(ready)
	manifests := env.installCharts(map[string]any{
		"cloudProvider": map[string]any{"name": "inventory", "inventory": map[string]any{"labels": labels}},
		"webhook":       map[string]any{"enabled": false},
	})
	invocation, err := chart.ControllerInvocation(manifests)
	Expect(err).NotTo(HaveOccurred())
	env.Controller = env.chartProgram(ready.program(programs.Controller), invocation)
	env.Agents = env.chartProgram(ready.program(programs.Agents), invocation)
	env.defaults = chart.Override(chart.Override(chart.Without(invocation.Args, healthFlag, metricsFlag), DefaultFlags()...),
		"--inventory-exec-directory="+directory, "--inventory-power-timeout=5s", "--inventory-quarantine=2s", "--inventory-repair-toleration=2s",
		"--feature-gates=NodeRepair=true,StaticCapacity=true,ReservedCapacity=true,TerminateFirstDrift=true,TerminateFirstRepair=true")
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: metricsReader, Namespace: chartNamespace}}
	Expect(env.Client.Create(env, reader)).To(Succeed())
	env.scraper = newScraper(env.TokenOf(chartNamespace, metricsReader))
	env.standing = []client.Object{test.InventoryNodeClass()}
	return env
}
