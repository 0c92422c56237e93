package migration_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// slowly has pods end in their own time: what is on a dead node is there until that is gone.
func slowly() func(*test.PodTemplate) { return test.StopsIn(10 * time.Second) }

// eventuallyOver expects a migration to end in one of the phases, however long a dead node holds it up, and returns it.
func eventuallyOver(m *mckubev1alpha1.PodMigration, phases ...any) *mckubev1alpha1.PodMigration {
	GinkgoHelper()
	var now *mckubev1alpha1.PodMigration
	Eventually(func(g Gomega) {
		now = read(g, m)
		g.Expect(now.Status.Phase.Over()).To(BeTrue(), "it is %s: %s", now.Status.Phase, now.Status.Message)
	}).Should(Succeed())
	Expect(now.Status.Phase).To(BeElementOf(phases...), now.Status.Message)
	return now
}

// gone expects a node to be replaced, and nothing to be left of it.
func gone(node string) {
	GinkgoHelper()
	Eventually(func() map[string]*corev1.Node { return env.Recorded().Last().Nodes }).ShouldNot(HaveKey(node))
	Eventually(func() map[string]*mckubev1alpha1.RTNode { return env.Recorded().Last().RTNodes }).ShouldNot(HaveKey(node))
}

// neverTwice expects that since the revision no two pods of the workload ran at once, as far as anybody could know.
func neverTwice(began uint64, workload string) {
	GinkgoHelper()
	env.History().Since(began).Walk(func(s history.State) {
		n := 0
		for _, p := range s.Pods {
			if p != nil && p.Labels[test.Label] == workload && p.Status.Phase == corev1.PodRunning {
				n++
			}
		}
		Expect(n).To(BeNumerically("<=", 1), "pods of %s that run, at revision %d", workload, s.Revision)
	})
}

var _ = Describe("A node dies", func() {
	It("that is the target, before anything was done: the migration ends and says so, and the pod runs on", func() {
		nodes := twoNodes()
		place, m := held(nodes, slowly())
		began := env.Now()
		env.ExpectDead(other(nodes, place.Pod))
		end := eventuallyOver(m, mckubev1alpha1.MigrationRefused, mckubev1alpha1.MigrationRolledBack)
		Expect(end.Status.Message).To(Or(ContainSubstring("the node is not ready"), ContainSubstring("is gone"), ContainSubstring("is being deleted")))
		undisturbed(began, place.Pod)
		nothingLeft()
	})

	It("that is the target, when the copy is there and does not run yet: it is taken back, and the pod runs on", Label("heavy"), SpecPriority(1), func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1, slowly())[0]
		to, began := other(nodes, place.Pod), env.Now()
		env.ExpectDead(to)
		m := test.PodMigration("move", place.Pod, test.To(to), test.By(mckubev1alpha1.StrategySurge))
		env.ExpectApplied(m)
		end := eventuallyOver(m, mckubev1alpha1.MigrationRolledBack)
		Expect(end.Status.Target.PodName).NotTo(BeEmpty(), "the copy was there")
		Expect(end.Status.Message).To(ContainSubstring("node " + to))
		Expect(end.Status.Message).To(ContainSubstring("not ready"))
		undisturbed(began, place.Pod)
		gone(to)
		Expect(env.EventuallyPlace("control").Pod.UID).To(Equal(place.Pod.UID))
		nothingLeft()
	})

	It("that is the target, when the pod was evicted and the one in its place does not run yet: that goes elsewhere with its machine", Label("heavy"), SpecPriority(1), func() {
		nodes := twoNodes()
		place := numbered(test.McKube("store", 40, test.Critical("High")), slowly())
		to, began := other(nodes, place.Pod), env.Now()
		env.ExpectDead(to)
		m := test.PodMigration("move", place.Pod, test.To(to))
		env.ExpectApplied(m)
		cordon(place.Node, true) // as a drain does: it is not to come back
		end := eventuallyOver(m, mckubev1alpha1.MigrationSucceeded)
		now := env.EventuallyPlace("store")
		Expect(nodes).NotTo(ContainElement(now.Node))
		Expect(end.Status.Target).To(And(HaveField("Node", now.Node), HaveField("PodUID", now.Pod.UID)))
		neverTwice(began, "store")
		cordon(place.Node, false)
		nothingLeft()
	})

	It("that is the source, when the pod was evicted and has not ended: it is made again on the target once its machine is gone, and never runs twice", Label("heavy"), SpecPriority(1), func() {
		nodes := twoNodes()
		place := numbered(test.McKube("store", 40, test.Critical("High")), slowly())
		to, began := other(nodes, place.Pod), env.Now()
		env.ExpectDead(place.Node)
		m := test.PodMigration("move", place.Pod, test.To(to))
		env.ExpectApplied(m)
		Eventually(func(g Gomega) {
			g.Expect(read(g, m).Status.Message).To(ContainSubstring("waits for StatefulSet store to make it again"))
		}).Should(Succeed())
		eventuallyOver(m, mckubev1alpha1.MigrationSucceeded)
		now := env.EventuallyPlace("store")
		Expect(now.Node).To(Equal(to))
		neverTwice(began, "store")
		gone(place.Node)
		nothingLeft()
	})

	It("that is the source of a pod of which two may run: the copy takes its place at once", Label("heavy"), SpecPriority(1), func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1, slowly())[0]
		env.ExpectDead(place.Node)
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)), test.By(mckubev1alpha1.StrategySurge))
		env.ExpectApplied(m)
		end := eventuallyOver(m, mckubev1alpha1.MigrationSucceeded)
		gone(place.Node)
		now := env.EventuallyPlace("control")
		Expect(now.Pod.UID).To(Equal(end.Status.Target.PodUID))
		Expect(metav1.GetControllerOf(now.Pod).UID).To(Equal(metav1.GetControllerOf(place.Pod).UID), "the ReplicaSet has it")
		nothingLeft()
	})
})
