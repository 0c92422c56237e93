package migration_test

import (
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// twoNodes opens two machines with two cores each, on which nearly all is free.
func twoNodes(changes ...func(*karpenterv1.NodePool)) [2]string {
	GinkgoHelper()
	return opened(append([]func(*karpenterv1.NodePool){test.Zones("test-zone-a")}, changes...))
}

// twoZones opens such machines in two zones.
func twoZones() [2]string {
	GinkgoHelper()
	return opened(nil, test.SpreadOver(corev1.LabelTopologyZone))
}

func opened(pool []func(*karpenterv1.NodePool), anchor ...func(*test.PodTemplate)) [2]string {
	GinkgoHelper()
	env.ExpectApplied(test.RTNodePool("two", "two-cores", pool...))
	anchors := replicated(test.McKube("anchor", 10), 2, append(anchor, test.ApartFromEachOther())...)
	Expect(anchors[0].Node).NotTo(Equal(anchors[1].Node))
	return [2]string{anchors[0].Node, anchors[1].Node}
}

// keptTo has only one of two nodes take what is made meanwhile.
func keptTo(node string, nodes [2]string, do func()) {
	GinkgoHelper()
	closed := nodes[0]
	if closed == node {
		closed = nodes[1]
	}
	cordon(closed, true)
	do()
	cordon(closed, false)
}

// ordinary applies a Deployment that no McKube governs, on a node.
func ordinary(name string, replicas int32, cpu, node string, nodes [2]string, changes ...func(*test.PodTemplate)) (pods []*corev1.Pod) {
	GinkgoHelper()
	keptTo(node, nodes, func() {
		env.ExpectApplied(test.Deployment(name, replicas, cpu, changes...))
		pods = env.EventuallyPodsBound(name, int(replicas))
	})
	for _, p := range pods {
		Expect(p.Spec.NodeName).To(Equal(node))
	}
	return pods
}

// other is the one of two nodes that the pod is not on.
func other(nodes [2]string, pod *corev1.Pod) string {
	if nodes[0] == pod.Spec.NodeName {
		return nodes[1]
	}
	return nodes[0]
}

// replicated applies a McKube and a Deployment of its name.
func replicated(m *mcoperatorv1.McKube, replicas int32, changes ...func(*test.PodTemplate)) []environment.Place {
	GinkgoHelper()
	test.GovernsWorkload(m.Name)(m)
	env.ExpectApplied(m, test.RTDeployment(m.Name, replicas, changes...))
	return env.EventuallyPlaced(m.Name, int(replicas))
}

// numbered applies a McKube and a StatefulSet of its name, of one pod.
func numbered(m *mcoperatorv1.McKube, changes ...func(*test.PodTemplate)) environment.Place {
	GinkgoHelper()
	test.GovernsWorkload(m.Name)(m)
	env.ExpectApplied(m, test.StatefulSet(m.Name, 1, "100m", append([]func(*test.PodTemplate){test.RealTime()}, changes...)...))
	return env.EventuallyPlace(m.Name)
}

// read is the PodMigration as it is now.
func read(g Gomega, m *mckubev1alpha1.PodMigration) *mckubev1alpha1.PodMigration {
	now := &mckubev1alpha1.PodMigration{}
	g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(m), now)).To(Succeed())
	return now
}

// eventuallyEnds expects a migration to end in the phase, and returns it.
func eventuallyEnds(m *mckubev1alpha1.PodMigration, phase mckubev1alpha1.MigrationPhase) *mckubev1alpha1.PodMigration {
	GinkgoHelper()
	var now *mckubev1alpha1.PodMigration
	Eventually(func(g Gomega) {
		now = read(g, m)
		g.Expect(now.Status.Phase.Over()).To(BeTrue(), "it is %s: %s", now.Status.Phase, now.Status.Message)
	}).Should(Succeed())
	Expect(now.Status.Phase).To(Equal(phase), now.Status.Message)
	Expect(now.Status.CompletionTime).NotTo(BeNil())
	return now
}

// migrated applies a PodMigration and expects it to succeed.
func migrated(m *mckubev1alpha1.PodMigration) *mckubev1alpha1.PodMigration {
	GinkgoHelper()
	env.ExpectApplied(m)
	return eventuallyEnds(m, mckubev1alpha1.MigrationSucceeded)
}

// refused applies a PodMigration and expects it to be refused for a reason, in words that contain the text; its pod, if there is one, stays.
func refused(m *mckubev1alpha1.PodMigration, text string) {
	GinkgoHelper()
	env.ExpectApplied(m)
	end := eventuallyEnds(m, mckubev1alpha1.MigrationRefused)
	condition := meta.FindStatusCondition(end.Status.Conditions, mckubev1alpha1.ConditionMigrationAdmitted)
	Expect(condition).NotTo(BeNil())
	Expect(condition.Status).To(Equal(metav1.ConditionFalse))
	Expect(strings.ToLower(condition.Reason + ": " + condition.Message)).To(ContainSubstring(strings.ToLower(text)))
}

// stays applies a PodMigration and expects it to be refused, or, where the cache had not shown yet what is in the way, given up before
// anything was done, in words that contain the text.
func stays(m *mckubev1alpha1.PodMigration, text string) {
	GinkgoHelper()
	env.ExpectApplied(m)
	Eventually(func(g Gomega) { g.Expect(read(g, m).Status.Phase.Over()).To(BeTrue()) }).Should(Succeed())
	end := read(Default, m)
	Expect(end.Status.Phase).To(BeElementOf(mckubev1alpha1.MigrationRefused, mckubev1alpha1.MigrationRolledBack), end.Status.Message)
	Expect(end.Status.Message).To(ContainSubstring(text))
}

// undisturbed expects that since the revision the pod has been there all along, and was never told to go.
func undisturbed(began uint64, pods ...*corev1.Pod) {
	GinkgoHelper()
	env.History().Since(began).Walk(func(s history.State) {
		for _, pod := range pods {
			p := s.Pods[client.ObjectKeyFromObject(pod)]
			Expect(p).NotTo(BeNil(), "pod %s at revision %d", pod.Name, s.Revision)
			Expect(p.UID).To(Equal(pod.UID), "pod %s at revision %d", pod.Name, s.Revision)
			Expect(p.DeletionTimestamp.IsZero()).To(BeTrue(), "pod %s at revision %d", pod.Name, s.Revision)
		}
	})
}

// ready is how many pods of a workload were ready and not told to go, least and most, since a revision.
func ready(began uint64, workload string) (least, most int) {
	GinkgoHelper()
	least = 1 << 30
	env.History().Since(began).Walk(func(s history.State) {
		n := 0
		for _, p := range s.Pods {
			if p != nil && p.Labels[test.Label] == workload && p.DeletionTimestamp.IsZero() && isReady(p) {
				n++
			}
		}
		least, most = min(least, n), max(most, n)
	})
	return least, most
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// everySeen are the UIDs of the pods of a workload since a revision.
func everySeen(began uint64, workload string) []types.UID {
	GinkgoHelper()
	seen := map[types.UID]bool{}
	env.History().Since(began).Walk(func(s history.State) {
		for _, p := range s.Pods {
			if p != nil && p.Labels[test.Label] == workload {
				seen[p.UID] = true
			}
		}
	})
	return slices.Collect(maps.Keys(seen))
}

// template is what a Deployment makes pods of, and how many.
func template(name string) appsv1.DeploymentSpec {
	GinkgoHelper()
	d := &appsv1.Deployment{}
	Expect(env.Client.Get(env, types.NamespacedName{Namespace: test.Namespace, Name: name}, d)).To(Succeed())
	return d.Spec
}

// cordon keeps further pods off a node.
func cordon(name string, on bool) {
	GinkgoHelper()
	node := &corev1.Node{}
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, types.NamespacedName{Name: name}, node)).To(Succeed())
		before := node.DeepCopy()
		node.Spec.Unschedulable = on
		g.Expect(env.Client.Patch(env, node, client.MergeFrom(before))).To(Succeed())
	}).Should(Succeed())
	Eventually(func(g Gomega) { // Kubernetes adds and removes the taint a moment later, and the taint is what keeps pods off
		g.Expect(env.Client.Get(env, types.NamespacedName{Name: name}, node)).To(Succeed())
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		g.Expect(tainted).To(Equal(on))
	}).Should(Succeed())
}

// nothingLeft expects that no action is under way, and no pod waits behind a gate.
func nothingLeft() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		actions, pods, checkpoints := &mckubev1alpha1.RTActionList{}, &corev1.PodList{}, &mckubev1alpha1.NodeCheckpointList{}
		g.Expect(env.Client.List(env, actions)).To(Succeed())
		g.Expect(env.Client.List(env, pods)).To(Succeed())
		g.Expect(env.Client.List(env, checkpoints)).To(Succeed())
		g.Expect(checkpoints.Items).To(BeEmpty())
		for _, a := range actions.Items {
			g.Expect(a.Status.Phase).NotTo(BeElementOf(mckubev1alpha1.ActionPhase(""), mckubev1alpha1.ActionPhase("Waiting"), mckubev1alpha1.ActionPhase("Running"), mckubev1alpha1.ActionPhase("RollingBack")), a.Name)
		}
		for _, p := range pods.Items {
			g.Expect(p.Spec.SchedulingGates).To(BeEmpty(), p.Name)
		}
	}).Should(Succeed())
}
