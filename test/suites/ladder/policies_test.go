package ladder_test

import (
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// ruled applies a policy for the pods of a workload for the length of a spec, and waits until it is known to be usable.
func ruled(workload string, change func(*mckubev1alpha1.MigrationPolicySpec)) {
	GinkgoHelper()
	p := &mckubev1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: workload}}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{test.Label: workload}}
	change(&p.Spec)
	env.ExpectApplied(p)
	DeferCleanup(func() { env.ExpectDeleted(p) })
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(p.Status.Conditions, "Ready")).To(BeTrue())
	}).Should(Succeed())
}

// inWords is why pods may not be moved.
const inWords = "the line is running"

// byRule denies by itself.
func byRule(s *mckubev1alpha1.MigrationPolicySpec) {
	s.Rules = []mckubev1alpha1.MigrationRule{{Name: "shift", Expression: `trigger == "RTPressure"`, Action: mckubev1alpha1.RuleDeny, Message: inWords}}
}

// byEngine asks a service, which says no.
func byEngine(s *mckubev1alpha1.MigrationPolicySpec) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte(`{"allowed": false, "reason": "` + inWords + `"}`))
		Expect(err).NotTo(HaveOccurred())
	}))
	DeferCleanup(server.Close)
	s.PolicyEngine = &mckubev1alpha1.PolicyEngine{URL: server.URL}
}

// besideRoom is control with a pod of a workload beside it, on a full machine; another machine has room for that pod.
func besideRoom(workload string, changes ...test.McKubeChange) (control, beside environment.Place, room string) {
	GinkgoHelper()
	control, beside = crowdedNode(test.McKube(workload, 35, changes...))
	room = governed(test.McKube("other", 80, test.Critical(high))).Node
	Expect(room).NotTo(Equal(control.Node))
	return control, beside, room
}

var _ = Describe("A MigrationPolicy", func() {
	DescribeTable("that keeps a pod from moving is heard, and pressure climbs to the next rung",
		func(denies func(*mckubev1alpha1.MigrationPolicySpec)) {
			env.ExpectApplied(twoCores())
			control, lesser, _ := besideRoom("lesser")
			ruled("lesser", denies)
			began := env.Now()
			play(control, crowded)
			eventuallyAnswered("Preempt")
			env.EventuallyGone(lesser.Pod)
			eventuallyOver()
			Expect(answers(env.History())).To(Equal([]string{"Preempt"}))
			Expect(phases(env.History(), "Migrate")).To(HaveEach("RolledBack"))
			Expect(said("Migrate")).To(ContainElement(ContainSubstring(inWords)))
			undisturbed(began, control.Pod)
		},
		Entry("by a rule", byRule),
		Entry("by its engine", byEngine),
	)

	It("that keeps the only pod whose going would help is told of in its words, and the pod stays", func() {
		env.ExpectApplied(twoCores())
		control, peer, _ := besideRoom("peer", test.Critical(high))
		ruled("peer", byRule)
		began := env.Now()
		play(control, crowded)
		env.EventuallyEvent(control.Pod, "PressureUnanswered", inWords)
		play(control, "")
		eventuallyOver()
		Expect(answers(env.History())).To(BeEmpty())
		Expect(phases(env.History(), "Migrate")).To(HaveEach("RolledBack"))
		undisturbed(began, control.Pod, peer.Pod)
	})
})

// replaceLate has the two pods of a node be late until it is replaced and they run elsewhere, and returns where they were, and since when they were late.
func replaceLate(before func()) (places []environment.Place, began uint64) {
	GinkgoHelper()
	env.ExpectApplied(twoCores(test.Budgets(test.Budget("1"))))
	places = replicated(test.McKube("control", 60, test.Critical(high), pressuredAt(3, 5)), 2)
	late := places[0].Node
	Expect(places[1].Node).To(Equal(late))
	before()
	began = env.Now()
	playOnNode(late, "0s late")
	eventuallyAnswered("ReplaceNode")
	for _, p := range places {
		env.EventuallyGone(p.Pod)
	}
	eventuallyOver()
	for _, p := range env.EventuallyPlaced("control", 2) {
		Expect(p.Node).NotTo(Equal(late))
	}
	return places, began
}

var _ = Describe("A node that is replaced", func() {
	It("is drained by migrations: each pod runs on another node before it goes, so that as many are ready all along", func() {
		places, began := replaceLate(func() {})
		moved := migrations(env.History())
		for _, p := range places {
			Expect(moved).To(ContainElement(And(
				HaveField("Spec.PodUID", p.Pod.UID), HaveField("Spec.Trigger", mckubev1alpha1.TriggerDrain),
				HaveField("Status.Phase", mckubev1alpha1.MigrationSucceeded),
			)), "of pod %s", p.Pod.Name)
		}
		Expect(moved).To(HaveLen(len(places)))
		Expect(fewestReady(env.History().Since(began), "control")).To(Equal(len(places)))
	})

	It("goes nevertheless when an engine lets none of its pods migrate: they are evicted, and the record has its words", func() {
		places, _ := replaceLate(func() { ruled("control", byEngine) })
		refused := migrations(env.History())
		for _, p := range places {
			Expect(refused).To(ContainElement(And(
				HaveField("Spec.PodUID", p.Pod.UID), HaveField("Spec.Trigger", mckubev1alpha1.TriggerDrain),
				HaveField("Status.Phase", mckubev1alpha1.MigrationRefused), HaveField("Status.Message", ContainSubstring(inWords)),
			)), "of pod %s", p.Pod.Name)
		}
	})
})

// migrations are those on record, with what last became of each.
func migrations(h history.History) []*mckubev1alpha1.PodMigration {
	last := map[types.UID]*mckubev1alpha1.PodMigration{}
	for _, v := range h.Versions() {
		if m, ok := v.Object.(*mckubev1alpha1.PodMigration); ok {
			last[m.UID] = m
		}
	}
	return lo.Values(last)
}

// fewestReady is how many pods of a workload were ready, and not told to go, when there were fewest.
func fewestReady(h history.History, workload string) int {
	fewest := -1
	h.Walk(func(s history.State) {
		n := lo.CountBy(lo.Values(s.Pods), func(p *corev1.Pod) bool {
			return p != nil && p.Labels[test.Label] == workload && p.DeletionTimestamp.IsZero() &&
				lo.ContainsBy(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		})
		if fewest < 0 || n < fewest {
			fewest = n
		}
	})
	return fewest
}
