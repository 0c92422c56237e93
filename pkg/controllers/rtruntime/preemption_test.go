package rtruntime_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

func TestAPreemptionTellsWhatItDoes(t *testing.T) {
	s := besieged(t, "tells")
	evictions, waits := measured(t)
	b := s.start(preempting)
	b.act("high")
	if depth := read(t, metrics.QueueDepth.WithLabelValues(metrics.KindPreemption)).GetGauge().GetValue(); depth != 1 {
		t.Errorf("queue depth %v while room is made", depth)
	}
	s.drama("high")
	if depth := read(t, metrics.QueueDepth.WithLabelValues(metrics.KindPreemption)).GetGauge().GetValue(); depth != 0 {
		t.Errorf("queue depth %v at the end", depth)
	}
	if e, w := measured(t); e != evictions+2 || w != waits+1 {
		t.Errorf("counted %v evictions, %d waits", e-evictions, w-waits)
	}
	if got := s.told.reasons("high"); !slices.Equal(got, []string{"Preempting", "PreemptionFinished"}) {
		t.Errorf("on the pod: %v", got)
	}
	for _, victim := range []string{"low-1", "low-2"} { // the pod and the McKube have one name
		if got := s.told.reasons(victim); !slices.Equal(got, []string{"Preempted", "Preempted"}) {
			t.Errorf("on %s: %v", victim, got)
		}
	}
}

// measured are the evictions and the waits that were counted.
func measured(t *testing.T) (evictions float64, waits uint64) {
	t.Helper()
	wait := metrics.QueueWait.WithLabelValues(metrics.KindPreemption).(prometheus.Metric)
	return read(t, metrics.Preemptions.WithLabelValues(metrics.ActionEvict)).GetCounter().GetValue(), read(t, wait).GetHistogram().GetSampleCount()
}

func read(t *testing.T, m prometheus.Metric) *dto.Metric {
	t.Helper()
	out := &dto.Metric{}
	if err := m.Write(out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNoPlanBeforeItsTime(t *testing.T) {
	s := newSiege(t, "early")
	s.node("a", 1)
	s.run("low", "a", "Low", 80, 0)
	p := s.wait("high", "High", 80)
	p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(s.clock.Now().Add(-3 * time.Second))
	s.must(s.API.Status().Update(t.Context(), p))
	b := s.start(preempting)
	if wait := b.act("high"); wait != 2*time.Second || s.plan("high") != nil {
		t.Errorf("3 s unschedulable: plan %v, asked again after %s", s.plan("high"), wait)
	}
	s.clock.Step(2 * time.Second)
	s.inFlight = true
	if b.act("high"); s.plan("high") != nil {
		t.Error("a plan while a node is on its way")
	}
	s.inFlight = false
	b.act("high")
	plan := s.plan("high")
	if plan == nil || plan.Node != "early-a" || !plan.Deadline.Equal(ptrTime(s.clock.Now().Add(time.Minute))) {
		t.Fatalf("plan: %+v", plan)
	}
	b.look()
	s.inFlight = true
	if b.act("high"); len(s.evicted) > 0 {
		t.Error("evicted although a node is on its way by now")
	}
}

func ptrTime(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }

func TestABudgetIsWaitedFor(t *testing.T) {
	s := besieged(t, "waits")
	budget := s.budget("budget", 0, "low-2")
	b := s.start(preempting)
	for range 4 {
		b.act("high")
		b.look()
	}
	plan := s.plan("high")
	if len(s.evicted) > 0 || plan == nil || !strings.Contains(plan.Waits, "PodDisruptionBudget budget allows 0 disruptions") {
		t.Fatalf("evicted %v, plan %+v", s.evicted, plan)
	}
	if !slices.Contains(s.told.reasons("high"), "PreemptionWaits") {
		t.Errorf("told: %v", s.told.reasons("high"))
	}
	s.allow(budget, 1)
	s.drama("high")
	if got := s.running(); !slices.Equal(got, []string{"equal", "high"}) {
		t.Errorf("left: %v", got)
	}
}

// The first of two would go, and the second stay: the first would have gone for nothing.
func TestABudgetForOneOfTwoLetsNeitherGo(t *testing.T) {
	s := besieged(t, "neither")
	s.budget("budget", 1, "low-1", "low-2")
	b := s.start(preempting)
	for range 5 {
		b.act("high")
		b.look()
	}
	if len(s.evicted) > 0 || s.plan("high") == nil {
		t.Errorf("evicted %v, plan %+v", s.evicted, s.plan("high"))
	}
}

// Two budgets cover a pod: only the eviction itself says that the API server does not choose.
func TestWhatOnlyADryRunTells(t *testing.T) {
	s := besieged(t, "dryrun")
	s.budget("one", 1, "low-2")
	s.budget("two", 1, "low-2")
	b := s.start(preempting)
	for range 5 {
		b.act("high")
		b.look()
	}
	if plan := s.plan("high"); len(s.evicted) > 0 || plan == nil || !strings.Contains(plan.Waits, "more than one PodDisruptionBudget") {
		t.Errorf("evicted %v, plan %+v", s.evicted, plan)
	}
}

func TestAPlanEndsAtItsDeadlineAndRests(t *testing.T) {
	s := besieged(t, "ends")
	s.budget("budget", 0, "low-1")
	held := s.shape("held")
	held.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: mcv1.GateYield}, {Name: "mine"}}
	s.must(s.API.Create(t.Context(), held))
	b, y := s.start(preempting), s.start(yielding)
	for range 3 {
		b.act("high")
		b.look()
	}
	y.look()
	if wait := y.step("held"); wait == 0 || len(s.pod("held").Spec.SchedulingGates) != 2 {
		t.Errorf("let go while the plan lasts: %v", s.pod("held").Spec.SchedulingGates)
	}
	s.clock.SetTime(s.plan("high").Deadline.Time)
	b.act("high")
	if s.plan("high") != nil || !slices.Contains(s.told.reasons("high"), "PreemptionFinished") {
		t.Errorf("plan %+v, told %v", s.plan("high"), s.told.reasons("high"))
	}
	y.look()
	y.step("held")
	if got := s.pod("held").Spec.SchedulingGates; !slices.Equal(got, []corev1.PodSchedulingGate{{Name: "mine"}}) {
		t.Errorf("gates: %v", got)
	}
	b.look()
	if wait := b.act("high"); wait != rtruntime.PreemptionRest || s.plan("high") != nil {
		t.Errorf("plans again after %s: %+v", wait, s.plan("high"))
	}
	b = s.start(preempting)
	b.look()
	if wait := b.act("high"); wait != rtruntime.PreemptionRest || s.plan("high") != nil {
		t.Errorf("another controller plans again after %s: %+v", wait, s.plan("high"))
	}
	s.clock.Step(rtruntime.PreemptionRest)
	if b.act("high"); s.plan("high") == nil {
		t.Error("no plan after the rest")
	}
	if len(s.evicted) > 0 {
		t.Errorf("evicted: %v", s.evicted)
	}
}

// A dearer victim that may go now is better than one that may not.
func TestBudgetsAreAvoidedWherePossible(t *testing.T) {
	s := newSiege(t, "avoids")
	s.node("a", 2)
	s.run("small", "a", "Low", 50, 0)
	large := s.run("large", "a", "Low", 80, 1)
	s.wait("high", "High", 60)
	s.budget("budget", 0, "small")
	s.start(preempting).act("high")
	if plan := s.plan("high"); plan == nil || len(plan.Victims) != 1 || plan.Victims[0] != large.UID {
		t.Errorf("plan: %+v", plan)
	}
}

// The cache shows a victim that is gone, and another pod has its name.
func TestANamesakeIsNotEvicted(t *testing.T) {
	s := newSiege(t, "namesake")
	s.node("a", 1)
	old := s.run("low", "a", "Low", 80, 0)
	s.wait("high", "High", 60)
	b := s.start(preempting)
	b.act("high")
	b.look()
	s.must(s.API.Delete(t.Context(), old, client.GracePeriodSeconds(0)))
	s.must(s.API.Create(t.Context(), s.shape("low")))
	for range 3 {
		b.act("high")
	}
	s.stale = old
	b.act("high")
	if len(s.evicted) > 0 || s.pod("low").DeletionTimestamp != nil {
		t.Errorf("evicted: %v", s.evicted)
	}
}

// The cache shows a pod as pending that the scheduler has just bound.
func TestNoPodGoesForAPodThatHasANode(t *testing.T) {
	s := besieged(t, "bound")
	b := s.start(preempting)
	b.act("high")
	b.look()
	s.stale = s.pod("high")
	s.bind("high", "bound-a")
	b.act("high")
	if len(s.evicted) > 0 {
		t.Errorf("evicted: %v", s.evicted)
	}
	s.stale = nil
	b.look()
	b.act("high")
	if s.plan("high") != nil {
		t.Error("the plan outlives its end")
	}
}

func TestAPlanIsNotWrittenOverWhatOthersWrote(t *testing.T) {
	s := besieged(t, "overwritten")
	b := s.start(preempting)
	s.stale = s.pod("high")
	changed := s.pod("high")
	changed.Labels["new"] = "yes"
	s.must(s.API.Update(t.Context(), changed))
	if b.act("high"); s.plan("high") != nil {
		t.Error("a plan was written onto a pod that has changed")
	}
	s.stale = nil
	if b.act("high"); s.plan("high") == nil || s.pod("high").Labels["new"] != "yes" {
		t.Error("no plan, or it took something away")
	}
}

// The cache has not seen the first plan yet when the second is made.
func TestPlansInAHurryDoNotOverlap(t *testing.T) {
	s := newSiege(t, "hurry")
	s.node("a", 2)
	s.run("low-1", "a", "Low", 70, 0)
	s.run("low-2", "a", "Low", 80, 1)
	s.wait("high-1", "High", 60)
	s.wait("high-2", "High", 60)
	s.wait("high-3", "High", 60)
	b := s.start(preempting)
	for _, pod := range []string{"high-1", "high-2", "high-3"} {
		b.act(pod)
	}
	first, second := s.plan("high-1"), s.plan("high-2")
	if first == nil || second == nil || first.Core == second.Core || first.Victims[0] == second.Victims[0] {
		t.Errorf("%+v, %+v", first, second)
	}
	if third := s.plan("high-3"); third != nil {
		t.Errorf("a plan with nothing left: %+v", third)
	}
}

func TestAPodThatGoesTakesItsPlanWithIt(t *testing.T) {
	s := besieged(t, "goes")
	low := s.shape("held")
	low.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: mcv1.GateYield}}
	s.must(s.API.Create(t.Context(), low))
	b := s.start(preempting)
	b.act("high")
	b.look()
	s.must(s.API.Delete(t.Context(), s.pod("high"), client.GracePeriodSeconds(0)))
	b.look()
	if wait := b.act("high"); wait != 0 || len(s.evicted) > 0 {
		t.Errorf("asked again after %s, evicted %v", wait, s.evicted)
	}
	s.start(yielding).step("held")
	if got := s.pod("held").Spec.SchedulingGates; len(got) > 0 {
		t.Errorf("still held back: %v", got)
	}
}

func TestAnUnreadablePlanIsTakenAway(t *testing.T) {
	s := besieged(t, "garbled")
	p := s.pod("high")
	p.Annotations = map[string]string{mcv1.AnnotationPreempting: "{"}
	s.must(s.API.Update(t.Context(), p))
	s.start(preempting).act("high")
	if got, ok := s.pod("high").Annotations[mcv1.AnnotationPreempting]; ok || len(s.evicted) > 0 {
		t.Errorf("plan %q, evicted %v", got, s.evicted)
	}
}

func intOrString(n int) intstr.IntOrString { return intstr.FromInt32(int32(n)) }
