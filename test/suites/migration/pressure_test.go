package migration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// crowded has three pods of 850m on one of two machines of 3 cores: 88 % of it is requested.
func crowded() (nodes [2]string) {
	GinkgoHelper()
	nodes = twoNodes()
	ordinary("heavy", 3, "850m", nodes[0], nodes)
	return nodes
}

// on is how many pods of a workload are ready on a node, and not told to go.
func on(workload, node string) (n int) {
	GinkgoHelper()
	for _, p := range env.Pods(workload) {
		if p.Spec.NodeName == node && p.DeletionTimestamp.IsZero() && isReady(p) {
			n++
		}
	}
	return n
}

// pressed is the status of the node's condition ResourcePressure.
func pressed(g Gomega, name string) corev1.ConditionStatus {
	node := &corev1.Node{}
	g.Expect(env.Client.Get(env, types.NamespacedName{Name: name}, node)).To(Succeed())
	for _, c := range node.Status.Conditions {
		if c.Type == "ResourcePressure" {
			return c.Status
		}
	}
	return ""
}

func pressureMigrations(g Gomega) []mckubev1alpha1.PodMigration {
	list := &mckubev1alpha1.PodMigrationList{}
	g.Expect(env.Client.List(env, list, client.InNamespace(test.Namespace))).To(Succeed())
	return list.Items
}

var _ = Describe("A node that is short of CPU", func() {
	It("only says so, unless more is asked for", func() {
		nodes := crowded()
		env.ExpectControllerWith("--usage-source=requests", "--migration-check-interval=1")
		Eventually(func(g Gomega) { g.Expect(pressed(g, nodes[0])).To(Equal(corev1.ConditionTrue)) }).Should(Succeed())
		env.EventuallyAnyEvent("ResourcePressureWouldMigrate", "to node "+nodes[1])
		Expect(pressureMigrations(Default)).To(BeEmpty())
		Expect(on("heavy", nodes[0])).To(Equal(3))
	})

	It("is left by as many pods as it takes, one after another ready elsewhere first", func() {
		nodes := crowded()
		began := env.Now()
		env.ExpectControllerWith("--resource-pressure=migrate", "--usage-source=requests", "--migration-check-interval=1")
		Eventually(func(g Gomega) {
			list := pressureMigrations(g)
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].Status.Phase).To(Equal(mckubev1alpha1.MigrationSucceeded), list[0].Status.Message)
			g.Expect(list[0].Spec.Trigger).To(Equal(mckubev1alpha1.TriggerResourcePressure))
			g.Expect(list[0].Spec.TargetNode).To(Equal(nodes[1]))
			g.Expect(pressed(g, nodes[0])).To(Equal(corev1.ConditionFalse))
		}).Should(Succeed())
		Expect([]int{on("heavy", nodes[0]), on("heavy", nodes[1])}).To(Equal([]int{2, 1}))
		least, _ := ready(began, "heavy")
		Expect(least).To(Equal(3))
		env.EventuallyAnyEvent("ResourcePressureBegan", "source requests")
		env.EventuallyAnyEvent("ResourcePressureEnded", "")
		Expect(pressureMigrations(Default)).To(HaveLen(1))
		nothingLeft()
	})
})

var _ = Describe("The command line", func() {
	It("moves a pod, and empties a node", func() {
		nodes := twoNodes(test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmpty, "Never"))
		cordon(nodes[1], true)
		env.ExpectDeleted(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "anchor"}}) // which cannot share a node
		Eventually(func() []*corev1.Pod { return env.Pods("anchor") }).Should(BeEmpty())
		env.ExpectApplied(test.Deployment("plain", 2, "100m"), test.StatefulSet("kept", 1, "100m"))
		pods := env.EventuallyPodsBound("plain", 2)
		env.EventuallyPodsBound("kept", 1)
		cordon(nodes[1], false)

		Expect(env.ExpectCommand("migrate", pods[0].Name, "-n", test.Namespace, "--to", nodes[1], "--dry-run")).To(ContainSubstring("to node " + nodes[1]))
		Expect(pressureMigrations(Default)).To(BeEmpty())
		Expect(env.ExpectCommand("migrate", pods[0].Name, "-n", test.Namespace, "--to", nodes[1], "--wait")).To(ContainSubstring("runs on node " + nodes[1]))
		Expect(on("plain", nodes[1])).To(Equal(1))

		Expect(env.ExpectCommand("drain", nodes[0], "--dry-run")).To(ContainSubstring("migrates"))
		out := env.ExpectCommand("drain", nodes[0], "--timeout", "2m")
		Expect(out).To(ContainSubstring("is drained: "))
		Expect(on("plain", nodes[0]) + on("kept", nodes[0])).To(BeZero())
		Eventually(func() []int { return []int{on("plain", nodes[1]), on("kept", nodes[1])} }).Should(Equal([]int{2, 1}))
		node := &corev1.Node{}
		Expect(env.Client.Get(env, types.NamespacedName{Name: nodes[0]}, node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeTrue())
		nothingLeft()
	})
})
