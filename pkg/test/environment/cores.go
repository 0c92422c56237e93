package environment

import (
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// Place is where a container runs.
type Place struct {
	Pod       *corev1.Pod
	Container string
	Node      string
	Core      int32
	// Level in force: low, hi or a level's name.
	Level string
}

// String is for failure messages.
func (p Place) String() string {
	return fmt.Sprintf("%s/%s on core %d of %s", p.Pod.Name, p.Container, p.Core, p.Node)
}

// EventuallyPlaced expects the workload to have exactly n running pods, each with a container on a core
// that its node's agent has read back, and returns where, by pod and container.
func (env *Environment) EventuallyPlaced(workload string, n int) []Place {
	GinkgoHelper()
	var places []Place
	Eventually(func(g Gomega) {
		pods := env.pods(g, workload)
		g.Expect(pods).To(HaveLen(n), "pods of %s", workload)
		places = nil
		for _, pod := range pods {
			g.Expect(pod.DeletionTimestamp.IsZero()).To(BeTrue(), "pod %s is being deleted", pod.Name)
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "pod %s", pod.Name)
			found := env.places(g, pod)
			g.Expect(found).NotTo(BeEmpty(), "pod %s has no core", pod.Name)
			places = append(places, found...)
		}
	}).Should(Succeed())
	return places
}

// EventuallyPlace is where the one container of the one pod of the workload runs in the end.
func (env *Environment) EventuallyPlace(workload string) Place {
	GinkgoHelper()
	places := env.EventuallyPlaced(workload, 1)
	Expect(places).To(HaveLen(1))
	return places[0]
}

// places lists the pod's containers that are on a core as their RTNode asks for.
func (env *Environment) places(g Gomega, pod *corev1.Pod) []Place {
	node := env.rtNode(g, pod.Spec.NodeName)
	var list []Place
	for _, s := range node.Spec.Servers {
		if s.PodUID != pod.UID {
			continue
		}
		i := slices.IndexFunc(node.Status.Servers, func(r mckubev1alpha1.RTServerStatus) bool {
			return r.PodUID == s.PodUID && r.Container == s.Container
		})
		g.Expect(i).To(BeNumerically(">=", 0), "the agent knows nothing of %s/%s", s.Pod, s.Container)
		applied := node.Status.Servers[i]
		g.Expect(applied.Cores).To(Equal(s.Cores), "cores read back for %s/%s", s.Pod, s.Container)
		list = append(list, Place{Pod: pod, Container: s.Container, Node: node.Name, Core: s.Cores[0], Level: applied.Level})
	}
	return list
}

func (env *Environment) rtNode(g Gomega, name string) *mckubev1alpha1.RTNode {
	node := &mckubev1alpha1.RTNode{}
	g.Expect(env.Client.Get(env, client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

// RTNode returns the RTNode of the name as it is now.
func (env *Environment) RTNode(name string) *mckubev1alpha1.RTNode {
	GinkgoHelper()
	var node *mckubev1alpha1.RTNode
	Eventually(func(g Gomega) { node = env.rtNode(g, name) }).Should(Succeed())
	return node
}

// EventuallyCondition expects the McKube to have the condition, for its present generation, with a
// message that contains text, and reads it back.
func (env *Environment) EventuallyCondition(m *mcoperatorv1.McKube, want metav1.Condition, text string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(m), m)).To(Succeed())
		have := meta.FindStatusCondition(m.Status.Conditions, want.Type)
		g.Expect(have).NotTo(BeNil(), "%+v", m.Status.Conditions)
		g.Expect(have.Status).To(Equal(want.Status), "%+v", *have)
		if want.Reason != "" {
			g.Expect(have.Reason).To(Equal(want.Reason), "%+v", *have)
		}
		g.Expect(have.Message).To(ContainSubstring(text))
		g.Expect(have.ObservedGeneration).To(Equal(m.Generation), "%+v", *have)
	}).Should(Succeed(), "condition %s of McKube %s", want.Type, m.Name)
}

// EventuallyTrue expects the McKube's condition to become true.
func (env *Environment) EventuallyTrue(m *mcoperatorv1.McKube, condition string) {
	GinkgoHelper()
	env.EventuallyCondition(m, metav1.Condition{Type: condition, Status: metav1.ConditionTrue}, "")
}

// EventuallyFalse expects the McKube's condition to become false for the reason, with a message that
// contains text.
func (env *Environment) EventuallyFalse(m *mcoperatorv1.McKube, condition, reason, text string) {
	GinkgoHelper()
	env.EventuallyCondition(m, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason}, text)
}

// EventuallyUnschedulable expects the one pod of the workload to be pending, and kube-scheduler to have
// said so of it as it is.
func (env *Environment) EventuallyUnschedulable(workload string) *corev1.Pod {
	GinkgoHelper()
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		pods := env.pods(g, workload)
		g.Expect(pods).To(HaveLen(1), "pods of %s", workload)
		pod = pods[0]
		g.Expect(pod.Spec.NodeName).To(BeEmpty())
		g.Expect(pod.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.PodScheduled), HaveField("Status", corev1.ConditionFalse),
		)))
	}).Should(Succeed())
	return pod
}
