package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("A more critical container", func() {
	// The seed's example: Middle 40 % and Low 35 % are on core 2 when High 25 % comes.
	It("takes the core that it prefers; the least critical moves to another core, and runs on", func() {
		env.ExpectApplied(threeCores(oneMachine))
		mid := governed(test.McKube("mid", 40, test.Critical(middle), test.Prefers("2")))
		weak := test.McKube("weak", 35, test.Prefers("2"))
		victim := governed(weak)
		Expect([]int32{mid.Core, victim.Core}).To(HaveEach(BeEquivalentTo(2)))
		began := env.Now()

		strong := governed(test.McKube("strong", 25, test.Critical(high), test.Prefers("2")))
		Expect(strong.Core).To(BeEquivalentTo(2))
		Eventually(func() int32 { return env.EventuallyPlace("weak").Core }).Should(BeElementOf(int32(1), int32(3)))
		Expect(env.EventuallyPlace("mid").Core).To(BeEquivalentTo(2))
		undisturbed(began, mid.Pod, victim.Pod)
		env.EventuallyEvent(victim.Pod, "Moved", "from core 2")
		env.EventuallyTrue(weak, mcoperatorv1.ConditionReady)
	})

	It("has the least critical evicted where no core of a full pool passes; that waits until it is placed", func() {
		env.ExpectApplied(twoCores(oneMachine))
		full := governed(test.McKube("full", 80, test.Critical(high), test.Prefers("1")))
		mid := governed(test.McKube("mid", 40, test.Critical(middle)))
		env.ExpectApplied(test.McKube("weak", 35, test.GovernsWorkload("weak")), test.RTDeployment("weak", 1))
		victim := env.EventuallyPlace("weak")
		Expect([]int32{mid.Core, victim.Core}).To(HaveEach(BeEquivalentTo(2)))
		began := env.Now()

		strong := governed(test.McKube("strong", 25, test.Critical(high)))
		Expect(strong.Core).To(BeEquivalentTo(2))
		undisturbed(began, full.Pod, mid.Pod)
		env.EventuallyEvent(strong.Pod, "Preempting", victim.Pod.Name)
		env.EventuallyEvent(victim.Pod, "Preempted", "strong")
		env.EventuallyEvent(victim.Pod, "ActionStarted", "Preempt for Pod strong")
		Eventually(func() string { return env.ExpectCommand("queue") }).Should(MatchRegexp(`preempt-[0-9a-f]+-1 +default/strong +High .* Succeeded .*evicted default/weak`))
		again := env.EventuallyUnschedulable("weak")
		Expect(again.UID).NotTo(Equal(victim.Pod.UID))
		expectYielded("weak", strong.Pod.UID)
		Eventually(func() []corev1.PodSchedulingGate { return env.Pods("weak")[0].Spec.SchedulingGates }).Should(BeEmpty(), "it waits no longer")
		eventuallyPod("strong").Should(HaveField("Annotations", Not(HaveKey(mcoperatorv1.AnnotationPreempting))))

		env.ExpectDeleted(strong.Pod)
		Expect(env.EventuallyPlace("weak").Core).To(BeEquivalentTo(2), "the victim comes back")
	})

	It("evicts nobody of its own criticality or a higher one, and says so", func() {
		env.ExpectApplied(twoCores(oneMachine))
		first := governed(test.McKube("first", 70, test.Critical(middle)))
		second := governed(test.McKube("second", 70, test.Critical(high)))
		began := env.Now()
		m := test.McKube("third", 70, test.Critical(middle))
		env.ExpectApplied(m, test.RTPod("third"))
		env.EventuallyUnschedulable("third")
		env.EventuallyFalse(m, mcoperatorv1.ConditionAdmitted, "", "")
		Eventually(func() string { return env.ExpectCommand("explain", "pod", "third") }).Should(ContainSubstring("no less critical"))
		undisturbed(began, first.Pod, second.Pod)
		Expect(env.History().Events("Preempting", "")).To(BeEmpty())
	})

	It("has nobody evicted where a pod that stays keeps it off the zone in any case", func() {
		env.ExpectApplied(twoCores(oneMachine))
		first, second := governed(test.McKube("first", 70)), governed(test.McKube("second", 70))
		env.ExpectApplied(test.Pod("bystander", "100m"))
		env.EventuallyPodsBound("bystander", 1)
		env.ExpectApplied(test.McKube("barred", 50, test.Critical(high)), test.RTPod("barred", func(t *test.PodTemplate) {
			t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{test.Label: "bystander"}},
			}}}}
		}))
		barred := env.EventuallyUnschedulable("barred")

		// By the time that one who came later has had room made, it would have been made for the first.
		governed(test.McKube("strong", 50, test.Critical(high)))
		Expect(lost(env.History(), []environment.Place{first, second})).To(HaveLen(1))
		for _, e := range env.History().Events("Preempting", "") {
			Expect(e.InvolvedObject.UID).NotTo(Equal(barred.UID), e.Message)
		}
	})

	It("waits where a PodDisruptionBudget forbids the eviction, says so, and goes on once it is allowed", func() {
		pdb := test.PodDisruptionBudget("weak", 0)
		env.ExpectApplied(twoCores(oneMachine), pdb, test.McKube("weak", 70, test.GovernsWorkload("weak")), test.RTDeployment("weak", 2))
		victims := env.EventuallyPlaced("weak", 2)
		began := env.Now()
		env.ExpectApplied(test.McKube("strong", 50, test.Critical(high)), test.RTPod("strong"))
		strong := env.EventuallyUnschedulable("strong")
		env.EventuallyEvent(strong, "PreemptionWaits", "PodDisruptionBudget")
		Eventually(func() string { return env.ExpectCommand("queue") }).Should(MatchRegexp(`default/strong +High .* PodDisruptionBudget .*weak allows 0, 1 needed`))
		undisturbed(began, victims[0].Pod, victims[1].Pod)

		environment.ExpectChanged(env, pdb, func(b *policyv1.PodDisruptionBudget) { *b.Spec.MaxUnavailable = intstr.FromInt32(1) })
		env.EventuallyPlace("strong")
		Eventually(func() []string { return lost(env.Recorded(), victims) }).Should(HaveLen(1), "one is enough")
	})

	It("has two of criticality Low evicted rather than one of Middle", func() {
		env.ExpectApplied(twoCores(oneMachine))
		low := []environment.Place{governed(test.McKube("low-0", 40, test.Prefers("1"))), governed(test.McKube("low-1", 40, test.Prefers("1")))}
		mid := governed(test.McKube("mid", 85, test.Critical(middle), test.Prefers("2")))
		began := env.Now()
		Expect(governed(test.McKube("strong", 80, test.Critical(high))).Core).To(BeEquivalentTo(1))
		undisturbed(began, mid.Pod)
		Expect(lost(env.History(), low)).To(HaveLen(2))
	})

	It("has as few evicted as possible", func() {
		env.ExpectApplied(twoCores(oneMachine))
		small := []environment.Place{
			governed(test.McKube("small-0", 28, test.Prefers("1"))),
			governed(test.McKube("small-1", 28, test.Prefers("1"))),
			governed(test.McKube("small-2", 28, test.Prefers("1"))),
		}
		large := governed(test.McKube("large", 60, test.Prefers("2")))
		Expect(cores(small)).To(HaveEach(BeEquivalentTo(1)))
		began := env.Now()
		strong := governed(test.McKube("strong", 60, test.Critical(high))) // two of the small ones, or the large one
		Expect(strong.Core).To(BeEquivalentTo(2))
		undisturbed(began, small[0].Pod, small[1].Pod, small[2].Pod)
		env.EventuallyGone(large.Pod)
	})

	It("still gets its core when its victim is deleted while it is being moved", func() {
		env.ExpectApplied(threeCores(oneMachine))
		mid := governed(test.McKube("mid", 40, test.Critical(middle), test.Prefers("2")))
		victim := governed(test.McKube("weak", 35, test.Prefers("2")))
		env.ExpectApplied(test.McKube("strong", 25, test.Critical(high), test.Prefers("2")), test.RTPod("strong"))
		env.EventuallyPodsBound("strong", 1)
		env.ExpectDeleted(victim.Pod)
		Expect(env.EventuallyPlace("strong").Core).To(BeEquivalentTo(2))
		Expect(env.EventuallyPlace("mid").Core).To(Equal(mid.Core))
		Eventually(func() any { s, _ := serverOf(env.Recorded().Last(), victim.Pod.UID); return s }).Should(BeNil())
	})
})

// expectYielded expects that no pod of the workload that was created after a pod had been told to go
// was bound before the beneficiary was.
func expectYielded(workload string, beneficiary types.UID) {
	GinkgoHelper()
	gated := false
	bound := false
	env.History().Walk(func(s history.State) {
		for _, p := range s.Pods {
			bound = bound || (p.UID == beneficiary && p.Spec.NodeName != "")
		}
		for _, p := range s.Pods {
			if p.Labels[test.Label] != workload || len(p.Spec.SchedulingGates) == 0 {
				continue
			}
			gated = true
			Expect(p.Spec.SchedulingGates).To(ConsistOf(corev1.PodSchedulingGate{Name: mcoperatorv1.GateYield}))
			Expect(p.Spec.NodeName).To(BeEmpty())
		}
	})
	Expect(bound).To(BeTrue())
	Expect(gated).To(BeTrue(), "the pod that replaces the victim is held back")
}

// lost lists the pods of places that have been told to go.
func lost(h history.History, places []environment.Place) []string {
	var names []string
	last := h.Last()
	for _, place := range places {
		alive := false
		for _, p := range last.Pods {
			alive = alive || (p.UID == place.Pod.UID && p.DeletionTimestamp.IsZero())
		}
		if !alive {
			names = append(names, place.Pod.Name)
		}
	}
	return names
}
