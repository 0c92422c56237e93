// Package inventory states what Mainspring promises about real machines, from the pod that needs one to the power
// that goes off behind it, and shows it on a real control plane with machines that a program switches.
package inventory_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// rack is a label of machines that pods select by.
const rack = "example.com/rack"

var (
	env *environment.Environment
	// programs is where the controller may run programs from, and states where the one there keeps what it knows.
	programs, states string
)

func TestInventory(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Inventory")
}

var _ = SynchronizedBeforeSuite(
	func(ctx SpecContext) []byte { return environment.Prepare(ctx) },
	func(prepared []byte) {
		programs = GinkgoT().TempDir()
		build := exec.Command("go", "build", "-o", filepath.Join(programs, "machine"), "./machine")
		build.Env = append(os.Environ(), "GOTOOLCHAIN=auto")
		out, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		env = environment.StartInventory(prepared, programs, rack)
	},
)

var _ = SynchronizedAfterSuite(func() { env.Stop() }, func() {})

var _ = BeforeEach(func() {
	states = GinkgoT().TempDir()
	env.BeforeEach()
})

var _ = AfterEach(func() {
	env.AfterEach()
	env.ExpectNothingForbidden()
})

// machine is one that the suite's program switches.
func machine(name string, changes ...func(*mckubev1alpha1.InventoryMachine)) *mckubev1alpha1.InventoryMachine {
	args := func(m *mckubev1alpha1.InventoryMachine) {
		m.Spec.Power.Exec.Args = []string{states, env.Plane.Kubeconfig()}
	}
	return test.InventoryMachine(name, append(changes, args)...)
}

// inRack gives the machine the label that pods select by.
func inRack(value string) func(*mckubev1alpha1.InventoryMachine) {
	return func(m *mckubev1alpha1.InventoryMachine) { m.Spec.Labels = map[string]string{rack: value} }
}

// costing is the machine's price in USD per hour.
func costing(price string) func(*mckubev1alpha1.InventoryMachine) {
	return func(m *mckubev1alpha1.InventoryMachine) { m.Spec.PricePerHour = lo.ToPtr(resource.MustParse(price)) }
}

// byHand makes the Node one that was joined without Karpenter: without the taint that awaits it.
func byHand(name string) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	environment.ExpectChanged(env, node, func(n *corev1.Node) { n.Spec.Taints = nil })
}

// unwell makes the kubelet of the Node report that it is not ready, until the machine starts anew.
func unwell(name string) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	environment.ExpectChanged(env, node, func(n *corev1.Node) { n.Labels["kwok.x-k8s.io/stage"] = "unhealthy" })
	Eventually(func() error {
		if err := env.Client.Get(env, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionFalse, "KubeletNotReady", metav1.Now()
			}
		}
		return env.Client.Status().Update(env, node)
	}).Should(Succeed())
}

// power is whether the machine is on, as the program knows it.
func power(name string) string {
	state, err := os.ReadFile(filepath.Join(states, name+".power"))
	if err != nil {
		return "off"
	}
	return string(state)
}

// calls counts how often an action was asked of the machine.
func calls(name, action string) int {
	lines, err := os.ReadFile(filepath.Join(states, name+".calls"))
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(lines)) {
		if strings.TrimSpace(line) == action {
			n++
		}
	}
	return n
}

// given makes the machine behave so: dead, hung or stuck. It returns what mends it.
func given(name, fault string) func() {
	GinkgoHelper()
	file := filepath.Join(states, name+"."+fault)
	Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	return func() { Expect(os.Remove(file)).To(Succeed()) }
}

// eventually expects the machine to be as the function says, and returns it.
func eventually(name string, check func(Gomega, *mckubev1alpha1.InventoryMachine)) *mckubev1alpha1.InventoryMachine {
	GinkgoHelper()
	m := &mckubev1alpha1.InventoryMachine{}
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKey{Name: name}, m)).To(Succeed())
		check(g, m)
	}).Should(Succeed(), "machine %s", name)
	return m
}

// phase expects the machine to come into the phase.
func phase(name, want string) *mckubev1alpha1.InventoryMachine {
	GinkgoHelper()
	return eventually(name, func(g Gomega, m *mckubev1alpha1.InventoryMachine) {
		g.Expect(m.Status.Phase).To(Equal(want), "%+v", m.Status)
	})
}
