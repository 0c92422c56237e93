package ladder_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
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

// Criticalities, for short.
const (
	low    = mcoperatorv1.CriticalityLow
	middle = mcoperatorv1.CriticalityMiddle
	high   = mcoperatorv1.CriticalityHigh
)

// crowded is the script of a container that overruns, its highest budget too, for as long as more than 60 % of its core
// are promised.
const crowded = "0s overrun-while-crowded 60"

// shortDelays make scenarios short. A container waits longer than a busy machine takes to give it a core before that is pressure.
func shortDelays() []string {
	return []string{
		"--rt-pressure-window=5s", "--rt-pressure-delay=3s", "--rt-pressure-settle=3s", "--rt-pressure-patience=20s",
		"--rt-pressure-calm=4s", "--rt-pressure-recovery-interval=2s",
	}
}

// twoCores is a NodePool of machines with two cores for real-time work.
func twoCores(changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	return test.RTNodePool("two", "two-cores", changes...)
}

// atMost keeps the pool at that many machines.
func atMost(machines int) func(*karpenterv1.NodePool) {
	return test.Limits(corev1.ResourceCPU, map[int]string{1: "3", 2: "6", 3: "9"}[machines])
}

// governed applies a McKube and then a pod of its name, which nobody makes again, and returns where it runs.
func governed(m *mcoperatorv1.McKube, changes ...func(*test.PodTemplate)) environment.Place {
	GinkgoHelper()
	env.ExpectApplied(m, test.RTPod(m.Name, changes...))
	return env.EventuallyPlace(m.Name)
}

// replicated applies a McKube and then a Deployment of its name, whose pods can be moved to another node.
func replicated(m *mcoperatorv1.McKube, replicas int32, changes ...func(*test.PodTemplate)) []environment.Place {
	GinkgoHelper()
	test.GovernsWorkload(m.Name)(m)
	env.ExpectApplied(m, test.RTDeployment(m.Name, replicas, changes...))
	return env.EventuallyPlaced(m.Name, int(replicas))
}

// play has the agents play a script to the place's container from now on. A pod that takes its place has none.
func play(place environment.Place, script string) {
	GinkgoHelper()
	env.ExpectScript(place.Pod.DeepCopy(), script)
}

func playOnNode(name, script string) {
	GinkgoHelper()
	env.ExpectScript(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, script)
}

// pressed tells whether the node is under pressure, by its RTNode and by its taint.
func pressed(g Gomega, node string) (condition, taint bool) {
	rtNode, n := &mckubev1alpha1.RTNode{}, &corev1.Node{}
	g.Expect(env.Client.Get(env, client.ObjectKey{Name: node}, rtNode)).To(Succeed())
	g.Expect(env.Client.Get(env, client.ObjectKey{Name: node}, n)).To(Succeed())
	return meta.IsStatusConditionTrue(rtNode.Status.Conditions, mckubev1alpha1.ConditionRTPressure), tainted(n)
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == mcoperatorv1.TaintPressure && t.Effect == corev1.TaintEffectNoSchedule
	})
}

// eventuallyPressed expects the node to get the condition and the taint.
func eventuallyPressed(node string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		condition, taint := pressed(g, node)
		g.Expect(condition).To(BeTrue(), "condition RTPressure of %s", node)
		g.Expect(taint).To(BeTrue(), "taint of %s", node)
	}).Should(Succeed())
}

// eventuallyOver expects every pressure to be over: no node is tainted or has the condition, and no action waits or runs.
func eventuallyOver() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		nodes, actions := &corev1.NodeList{}, &mckubev1alpha1.RTActionList{}
		g.Expect(env.Client.List(env, nodes)).To(Succeed())
		g.Expect(env.Client.List(env, actions)).To(Succeed())
		for i := range nodes.Items {
			condition, taint := pressed(g, nodes.Items[i].Name)
			g.Expect(condition || taint).To(BeFalse(), "node %s: condition %t, taint %t", nodes.Items[i].Name, condition, taint)
		}
		for _, a := range actions.Items {
			g.Expect(over(&a)).To(BeTrue(), "%s is %s: %s", a.Name, a.Status.Phase, a.Status.Message)
		}
	}).Should(Succeed())
}

func over(a *mckubev1alpha1.RTAction) bool {
	return !slices.Contains([]mckubev1alpha1.ActionPhase{"", "Waiting", "Running", "RollingBack"}, a.Status.Phase)
}

// actions are those on record, with what last became of each, in the order of their creation.
func actions(h history.History) []*mckubev1alpha1.RTAction {
	last := map[types.UID]*mckubev1alpha1.RTAction{}
	for _, v := range h.Versions() {
		if a, ok := v.Object.(*mckubev1alpha1.RTAction); ok {
			last[a.UID] = a
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b *mckubev1alpha1.RTAction) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// answers are the kinds of the actions that answered pressure and succeeded.
func answers(h history.History) []string {
	var kinds []string
	for _, a := range actions(h) {
		if a.Spec.Reason == "RTPressure" && a.Status.Phase == "Succeeded" {
			kinds = append(kinds, string(a.Spec.Kind))
		}
	}
	return kinds
}

// eventuallyAnswered expects an action of the kind to succeed.
func eventuallyAnswered(kind mckubev1alpha1.ActionKind) *mckubev1alpha1.RTAction {
	GinkgoHelper()
	var found *mckubev1alpha1.RTAction
	Eventually(func(g Gomega) {
		all := actions(env.Recorded())
		i := slices.IndexFunc(all, func(a *mckubev1alpha1.RTAction) bool {
			return a.Spec.Kind == kind && a.Spec.Reason == "RTPressure" && a.Status.Phase == "Succeeded"
		})
		g.Expect(i).To(BeNumerically(">=", 0), "actions: %v", lo.Map(all, describe))
		found = all[i]
	}).Should(Succeed(), "%s should succeed", kind)
	return found
}

// phases are those in which the actions of the kind are, by a history.
func phases(h history.History, kind mckubev1alpha1.ActionKind) []string {
	var list []string
	for _, a := range actions(h) {
		if a.Spec.Kind == kind {
			list = append(list, string(a.Status.Phase))
		}
	}
	return list
}

func describe(a *mckubev1alpha1.RTAction, _ int) string {
	return strings.Join([]string{a.Name, string(a.Spec.Kind), a.Spec.Reason, string(a.Status.Phase), a.Status.WaitingFor, a.Status.Message}, " ")
}

// undisturbed expects that since the revision every version of the pod is there, and none is being deleted.
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

func nodeMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// pressuredAt is from how many misses within how many seconds the node counts as late.
func pressuredAt(misses, seconds int32) test.McKubeChange {
	return func(m *mcoperatorv1.McKube) {
		m.Spec.PressuredDeadlinesTotal, m.Spec.PressuredDeadlinesPeriod = &misses, &seconds
	}
}
