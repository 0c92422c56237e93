package realtime_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// Each of these went wrong in the seed, the MC-Kube controller. Those that need more of a scenario are in the
// files beside this one: cores booked as a whole range ("of a range are alternatives"), recovery never
// triggered ("is taken back when the node has been calm"), the webhook failing closed for all pods ("the
// webhook is away"), a dry run with effects ("leave nothing behind").
var _ = Describe("Unlike the seed,", func() {
	It("an escalated container's budget is not counted twice", func() {
		m := test.McKube("control", 30, test.Critical(high), test.MayRiseTo(50), test.RecoversAfter(recovery))
		env.ExpectApplied(twoCores(oneMachine))
		place := governed(m)
		setBusy(place.Node, "true")
		eventuallyAt(m, "hi")
		// 0.9 less 0.5 is enough for 0.38 beside it, now that it is at 0.5; once more 0.5 would not be.
		second := governed(test.McKube("second", 38, test.Prefers("1")))
		third := governed(test.McKube("third", 38, test.Prefers("2")))
		fourth := governed(test.McKube("fourth", 48))
		Expect(nodes(place, second, third, fourth)).To(HaveLen(1))
		setBusy(place.Node, "false")
		eventuallyAt(m, "low")
	})

	It("what is booked is the core that was given, not the one that was wished", func() {
		env.ExpectApplied(twoCores(oneMachine))
		strong := governed(test.McKube("strong", 80, test.Critical(high), test.Prefers("1")))
		other := governed(test.McKube("other", 80, test.Critical(high), test.Prefers("1"))) // gets core 2
		Expect([]int32{strong.Core, other.Core}).To(Equal([]int32{1, 2}))
		m := test.McKube("late", 30, test.Prefers("2"))
		env.ExpectApplied(m, test.RTPod("late"))
		env.EventuallyUnschedulable("late") // core 2 is full, whoever was wished where
		env.ExpectDeleted(other.Pod)
		Expect(env.EventuallyPlace("late").Core).To(BeEquivalentTo(2))
	})

	It("the cores of a node are those that it has, and their one capacity is 0.9 less the margin", func() {
		env.ExpectApplied(twoCores(oneMachine), test.McKube("wide", 89, test.GovernsWorkload("wide")), test.RTDeployment("wide", 2))
		places := env.EventuallyPlaced("wide", 2)
		Expect(cores(places)).To(ConsistOf(BeEquivalentTo(1), BeEquivalentTo(2)))
		env.ExpectApplied(test.McKube("third", 10), test.RTPod("third"))
		env.EventuallyUnschedulable("third")
		node := env.RTNode(places[0].Node)
		Expect(node.Status.Cores).To(ConsistOf(
			And(HaveField("ID", BeEquivalentTo(1)), HaveField("CapacityPpm", BeEquivalentTo(900_000))),
			And(HaveField("ID", BeEquivalentTo(2)), HaveField("CapacityPpm", BeEquivalentTo(900_000))),
		))
		// 0.92 is under the kernel's 0.95 and over the one capacity there is: no core will ever take it.
		m := test.McKube("huge", 92)
		env.ExpectApplied(m, test.RTPod("huge"))
		env.EventuallyUnschedulable("huge")
		env.EventuallyFalse(m, mcoperatorv1.ConditionAdmitted, "", "")
	})

	It("a restarted controller knows every core that is taken", func() {
		env.ExpectApplied(twoCores(oneMachine))
		first := governed(test.McKube("first", 60))
		second := governed(test.McKube("second", 60))
		env.ExpectRestart()
		began := env.Now()
		env.ExpectApplied(test.McKube("third", 60), test.RTPod("third"))
		env.EventuallyUnschedulable("third")
		Expect(env.EventuallyPlace("first").Core).To(Equal(first.Core))
		Expect(env.EventuallyPlace("second").Core).To(Equal(second.Core))
		undisturbed(began, first.Pod, second.Pod)
	})

	It("a victim holds its core until it is really gone", func() {
		env.ExpectApplied(twoCores(oneMachine))
		governed(test.McKube("full", 80, test.Critical(high), test.Prefers("1")))
		victim := governed(test.McKube("weak", 70, test.Prefers("2")), test.StopsIn(graceOfVictim), test.IgnoresSIGTERM())
		strong := governed(test.McKube("strong", 70, test.Critical(high)))
		Expect(strong.Core).To(Equal(victim.Core))
		env.History().Walk(func(s history.State) {
			p, still := s.Pods[keyOf(strong.Pod)], s.Pods[keyOf(victim.Pod)]
			if p != nil && p.Spec.NodeName != "" {
				Expect(running(still)).To(BeFalse(), "the victim still ran when its core was given away, at revision %d", s.Revision)
			}
		})
	})

	DescribeTable("pods of every quality of service get their core:",
		func(class corev1.PodQOSClass, resources corev1.ResourceRequirements) {
			env.ExpectApplied(twoCores(oneMachine))
			place := governed(test.McKube("any", 30), func(t *test.PodTemplate) { t.Spec.Containers[0].Resources = resources })
			Expect(place.Pod.Status.QOSClass).To(Equal(class))
		},
		Entry("BestEffort", corev1.PodQOSBestEffort, corev1.ResourceRequirements{}),
		Entry("Guaranteed", corev1.PodQOSGuaranteed, guaranteed()),
	)

	It("pods of one name that follow each other are different pods", func() {
		env.ExpectApplied(twoCores(oneMachine))
		m := test.McKube("again", 30, test.Critical(high), test.MayRiseTo(50))
		first := governed(m)
		play(first, "0s overrun 5")
		eventuallyAt(m, "hi")
		env.ExpectDeleted(first.Pod)
		env.EventuallyGone(first.Pod)
		env.ExpectApplied(test.RTPod("again"))
		second := env.EventuallyPlace("again")
		Expect(second.Pod.UID).NotTo(Equal(first.Pod.UID))
		Expect(levels(env.History(), second.Pod.UID)).To(Equal([]string{"low"}), "it does not begin where the other ended")
		eventuallyAt(m, "low")
	})

	It("two pods of one name in two namespaces are two pods", func() {
		uids := map[types.UID]environment.Place{}
		env.ExpectApplied(namespace("seed-a"), namespace("seed-b"), twoCores(oneMachine))
		for _, in := range []string{"seed-a", "seed-b"} {
			env.ExpectApplied(test.McKube("twin", 60, test.In(in)), test.RTPod("twin", test.InNamespace(in)))
		}
		for _, p := range env.EventuallyPlaced("twin", 2) {
			uids[p.Pod.UID] = p
		}
		Expect(uids).To(HaveLen(2))
	})
})

// graceOfVictim is long enough to see that nobody takes its core meanwhile.
const graceOfVictim = 5 * time.Second

func running(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }

func guaranteed() corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("100Mi")}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}
