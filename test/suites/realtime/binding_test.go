package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("A McKube", func() {
	It("that is there before its pod gives it a claim, annotations and a core from the start", func() {
		m := test.McKube("control", 30, test.Critical(high), test.MayRiseTo(40), test.Prefers("2"))
		env.ExpectApplied(twoCores())
		place := governed(m)

		created := firstPod("control")
		Expect(created.Spec.ResourceClaims).To(ConsistOf(HaveField("Name", "rt-app")))
		Expect(created.Spec.Containers[0].Resources.Claims).To(ConsistOf(HaveField("Name", "rt-app")))
		Expect(created.Annotations).To(And(
			HaveKeyWithValue(mcoperatorv1.AnnotationPeriod, "100000"),
			HaveKeyWithValue(mcoperatorv1.AnnotationRuntimeLow, "30000"),
			HaveKeyWithValue(mcoperatorv1.AnnotationRuntimeHi, "40000"),
			HaveKeyWithValue(mcoperatorv1.AnnotationCurrent, "low"),
			HaveKeyWithValue(mcoperatorv1.AnnotationCore, "2"),
			HaveKeyWithValue(mcoperatorv1.AnnotationPending, "true"),
		))
		Expect(place.Core).To(BeEquivalentTo(2))
		Expect(place.Level).To(Equal("low"))
		for _, condition := range []string{
			mcoperatorv1.ConditionAdmitted, mcoperatorv1.ConditionPlaced, mcoperatorv1.ConditionConfigured, mcoperatorv1.ConditionReady,
		} {
			env.EventuallyTrue(m, condition)
		}
		Expect(m.Finalizers).To(ContainElement(mcoperatorv1.Finalizer))
		Expect(m.Status).To(And(
			HaveField("Node", place.Node), HaveField("AllocatedCore", "2"), HaveField("Backend", "simulated"),
			HaveField("CurrentRuntime", "low"), HaveField("Pods", BeEquivalentTo(1)), HaveField("ReadyPods", BeEquivalentTo(1)),
		))
		eventuallyPod("control").Should(HaveField("Annotations", And(
			HaveKeyWithValue(mcoperatorv1.AnnotationConfigured, "true"),
			Not(HaveKeyWithValue(mcoperatorv1.AnnotationPending, "true")),
		)))
	})

	It("that comes after its pod finds it waiting, and opens a node for it", func() {
		env.ExpectApplied(test.NodePool("general"), twoCores(oneMachine), test.RTPod("first"))
		pod := &corev1.Pod{}
		Expect(env.Client.Get(env, client.ObjectKey{Namespace: test.Namespace, Name: "first"}, pod)).To(Succeed())
		Expect(pod.Annotations).To(HaveKeyWithValue(mcoperatorv1.AnnotationPending, "true"))
		Expect(pod.Spec.ResourceClaims).To(HaveLen(1), "it runs nowhere without a core")
		m := test.McKube("first", 60)
		env.ExpectApplied(m)
		Expect(env.EventuallyPlace("first").Pod.UID).To(Equal(pod.UID))
		env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
	})

	It("that comes after a pod without the label adopts the running container, onto a core that scheduler and Karpenter then see taken", func() {
		env.ExpectApplied(twoCores(oneMachine), test.Pod("late", "100m", inPool("two")))
		pod := env.EventuallyPodsBound("late", 1)[0]
		Expect(pod.Spec.ResourceClaims).To(BeEmpty())
		m := test.McKube("late", 60)
		env.ExpectApplied(m)
		place := env.EventuallyPlace("late")
		Expect(place.Pod.UID).To(Equal(pod.UID), "it was not restarted")
		env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
		claim := &resourcev1.ResourceClaim{}
		Expect(env.Client.Get(env, client.ObjectKey{Namespace: test.Namespace, Name: "late-app-rt"}, claim)).To(Succeed())
		Expect(metav1.IsControlledBy(claim, pod) || ownedBy(claim, pod)).To(BeTrue(), "the claim goes with the pod: %v", claim.OwnerReferences)

		other := governed(test.McKube("other", 60))
		Expect(other.Core).NotTo(Equal(place.Core))
		env.ExpectApplied(test.McKube("third", 60), test.RTPod("third"))
		env.EventuallyUnschedulable("third")
		env.ExpectDeleted(pod)
		env.EventuallyGone(claim)
		Expect(env.EventuallyPlace("third").Core).To(Equal(place.Core), "the room is given back with the pod")
	})

	It("that comes after a pod without the label, on a node without cores for real-time work, says that the pod has to be created again", func() {
		m := test.McKube("stray", 30)
		env.ExpectApplied(test.NodePool("general"), test.Pod("stray", "100m"))
		env.EventuallyPodsBound("stray", 1)
		env.ExpectApplied(m)
		env.EventuallyFalse(m, mcoperatorv1.ConditionAdmitted, "NodeHasNoCores", "re-create")
		env.EventuallyFalse(m, mcoperatorv1.ConditionReady, "", "")
	})

	It("with a selector governs every pod of a Deployment, and those that replace them", func() {
		m := test.McKube("web", 40, test.GovernsWorkload("web"))
		env.ExpectApplied(m, twoCores(), test.RTDeployment("web", 3))
		before := env.EventuallyPlaced("web", 3)
		env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
		Expect(m.Status).To(And(HaveField("Pods", BeEquivalentTo(3)), HaveField("ReadyPods", BeEquivalentTo(3))))
		replaced := before[0].Pod
		env.ExpectDeleted(replaced)
		env.EventuallyGone(replaced)
		after := env.EventuallyPlaced("web", 3)
		Expect(after).NotTo(ContainElement(HaveField("Pod.UID", replaced.UID)))
		Eventually(func() any { s, _ := serverOf(env.Recorded().Last(), replaced.UID); return s }).Should(BeNil(), "the old pod's core is free")
	})

	It("governs one container of several; each has a claim and a core of its own", func() {
		first := test.McKube("fast", 60, test.GovernsPod("pair"), test.GovernsContainer("app"))
		second := test.McKube("slow", 50, test.GovernsPod("pair"), test.GovernsContainer("side"))
		env.ExpectApplied(twoCores(), first, second, test.RTPod("pair", test.WithContainer("side")))
		places := env.EventuallyPlaced("pair", 1)
		Expect(places).To(ConsistOf(HaveField("Container", "app"), HaveField("Container", "side")))
		Expect(cores(places)).To(ConsistOf(BeEquivalentTo(1), BeEquivalentTo(2)))
		Expect(firstPod("pair").Annotations[mcoperatorv1.AnnotationRuntimeLow]).To(And(ContainSubstring("app=60000"), ContainSubstring("side=50000")))
		env.EventuallyTrue(first, mcoperatorv1.ConditionReady)
		env.EventuallyTrue(second, mcoperatorv1.ConditionReady)
	})

	It("keeps a StatefulSet's pods apart from their predecessors of the same name", func() {
		m := test.McKube("db", 70, test.GovernsWorkload("db"))
		env.ExpectApplied(m, twoCores(oneMachine), test.StatefulSet("db", 2, "100m", test.RealTime()))
		before := env.EventuallyPlaced("db", 2)
		env.ExpectDeleted(before[0].Pod)
		Eventually(func(g Gomega) {
			after := env.Pods("db")
			g.Expect(after).To(HaveLen(2))
			g.Expect(after[0].UID).NotTo(Equal(before[0].Pod.UID))
		}).Should(Succeed())
		after := env.EventuallyPlaced("db", 2)
		Expect(after[0].Pod.Name).To(Equal(before[0].Pod.Name))
		Expect(after[0].Core).To(Equal(before[0].Core), "the only core that is left")
		Expect(after[1].Pod.UID).To(Equal(before[1].Pod.UID))
		Expect(after[1].Core).To(Equal(before[1].Core))
	})

	It("governs a DaemonSet's pods, one on each node that has room for it", func() {
		env.ExpectApplied(twoCores(), test.Deployment("web", 2, "100m", inPool("two"), test.ApartFromEachOther()))
		env.EventuallyPodsBound("web", 2)
		m := test.McKube("sensor", 40, test.GovernsWorkload("sensor"))
		env.ExpectApplied(m, test.DaemonSet("sensor", "50m", test.RealTime(), inPool("two")))
		Expect(nodes(env.EventuallyPlaced("sensor", 2)...)).To(HaveLen(2))
	})

	It("governs in its own namespace only", func() {
		env.ExpectApplied(
			twoCores(), namespace("plant-a"), namespace("plant-b"),
			test.McKube("drive", 70, test.In("plant-a")), test.McKube("drive", 20, test.In("plant-b")),
			test.RTPod("drive", test.InNamespace("plant-a")), test.RTPod("drive", test.InNamespace("plant-b")),
		)
		places := env.EventuallyPlaced("drive", 2)
		budgets := map[string]int64{}
		for _, p := range places {
			s, _ := serverOf(env.History().Last(), p.Pod.UID)
			budgets[p.Pod.Namespace] = s.BudgetLowUs
		}
		Expect(budgets).To(Equal(map[string]int64{"plant-a": 70_000, "plant-b": 20_000}))
	})

	It("governs pods without the label too, and labels them", func() {
		m := test.McKube("plain", 40)
		env.ExpectApplied(twoCores(), m)
		probe := func() *corev1.Pod {
			pod := test.Pod("plain", "100m")
			Expect(env.Client.Create(env, pod, client.DryRunAll)).To(Succeed())
			return pod
		}
		Eventually(probe).Should(HaveField("Spec.ResourceClaims", Not(BeEmpty())), "the API server should ask about such pods")
		env.ExpectApplied(test.Pod("plain", "100m"))
		Expect(env.EventuallyPlace("plain").Pod.Labels).To(HaveKey(mcoperatorv1.LabelRT))
	})

	It("that would be the second for a container is refused, and so is a pod with two", func() {
		env.ExpectApplied(test.McKube("first", 30, test.GovernsPod("both")))
		env.ExpectDenied(test.McKube("again", 30, test.GovernsPod("both")), "podname", "McKube first governs")
		env.ExpectApplied(test.McKube("wide", 30, test.GovernsWorkload("both"))) // whose pods may be others
		env.ExpectDenied(test.RTPod("both"), "container app", "first", "wide")
	})

	It("that comes to be the second for a container, because its labels changed, does not govern it, and says which one does", func() {
		elder := test.McKube("elder", 30, test.GovernsWorkload("other"))
		younger := test.McKube("younger", 30, test.GovernsPod("relabelled"))
		env.ExpectApplied(twoCores(), elder)
		place := governed(younger)
		environment.ExpectChanged(env, place.Pod.DeepCopy(), func(p *corev1.Pod) { p.Labels[test.Label] = "other" })
		env.EventuallyFalse(younger, mcoperatorv1.ConditionReady, "Conflict", "elder")
		env.EventuallyTrue(elder, mcoperatorv1.ConditionReady)
		Expect(env.EventuallyPlace("other").Core).To(Equal(place.Core))

		env.ExpectDeleted(elder)
		env.EventuallyGone(elder)
		env.EventuallyTrue(younger, mcoperatorv1.ConditionReady)
	})

	It("that is deleted leaves its container running, without a budget and without a core", func() {
		m := test.McKube("brief", 30)
		env.ExpectApplied(twoCores())
		place := governed(m)
		began := env.Now()
		env.ExpectDeleted(m)
		env.EventuallyGone(m)
		Eventually(func() any { s, _ := serverOf(env.Recorded().Last(), place.Pod.UID); return s }).Should(BeNil())
		undisturbed(began, place.Pod)
		eventuallyPod("brief").Should(HaveField("Annotations", Not(HaveKeyWithValue(mcoperatorv1.AnnotationConfigured, "true"))))
		lastServer, ok := env.History().Since(began).First(func(s history.State) bool {
			m := s.McKubes[client.ObjectKeyFromObject(m)]
			return m == nil
		})
		Expect(ok).To(BeTrue())
		s, _ := serverOf(lastServer, place.Pod.UID)
		Expect(s).To(BeNil(), "the finalizer held the McKube until its server was gone")
	})
})

func ownedBy(o metav1.Object, owner metav1.Object) bool {
	for _, reference := range o.GetOwnerReferences() {
		if reference.UID == owner.GetUID() {
			return true
		}
	}
	return false
}
