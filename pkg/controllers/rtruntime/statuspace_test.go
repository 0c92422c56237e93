package rtruntime_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
)

// A pod that comes, or an agent that counts, changes a McKube's status several times a second: what is still so after a second is written, and nothing of
// what has passed by then. That all is in order is written at once.
func TestAStatusThatOnlyPassesIsNotWritten(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.bare("p", n.Name, "app")
	o.mckube("m", "p", 20, 40)
	o.settle([]string{n.Name}, "m")
	report := func(misses int64, refused string) {
		t.Helper()
		status := heartbeat(o.clock.Now())
		status.ObservedGeneration = o.rtNode(n.Name).Generation
		status.Servers = []v1alpha1.RTServerStatus{{
			PodUID: p.UID, Container: "app", BudgetUs: 20_000, PeriodUs: 100_000, Cores: []int32{0}, Level: "low", Misses: misses, Error: refused,
		}}
		o.agentReports(n.Name, status)
		o.lookAndAct(n.Name)
	}
	expect := func(misses int64, ready metav1.ConditionStatus, reason string, wait time.Duration) {
		t.Helper()
		got, err := o.serve("m")
		o.must(err)
		if m := o.get("m"); m.Status.DeadlineMisses != misses || got != wait {
			t.Errorf("%d misses are written, want %d; looks again after %s, want %s", m.Status.DeadlineMisses, misses, got, wait)
		}
		o.is("m", mcv1.ConditionReady, ready, reason)
	}
	report(0, "EBUSY")
	o.settle([]string{n.Name}, "m") // the pod is told, too
	o.clock.Step(time.Second)
	report(1, "EBUSY")
	expect(1, metav1.ConditionFalse, "RefusedByAgent", 0)
	o.clock.Step(300 * time.Millisecond)
	report(2, "EBUSY")
	expect(1, metav1.ConditionFalse, "RefusedByAgent", 4700*time.Millisecond)
	report(3, "EPERM")
	expect(1, metav1.ConditionFalse, "RefusedByAgent", time.Second)
	o.clock.Step(time.Second)
	expect(3, metav1.ConditionFalse, "RefusedByAgent", 0)
	report(4, "")
	expect(4, metav1.ConditionTrue, "Ready", 0)
	report(5, "")
	o.clock.Step(4 * time.Second)
	expect(4, metav1.ConditionTrue, "Ready", time.Second)
	o.clock.Step(time.Second)
	expect(5, metav1.ConditionTrue, "Ready", 0)
	o.clock.Step(time.Minute)
	report(5, "EBUSY")
	expect(5, metav1.ConditionTrue, "Ready", time.Second)
	report(5, "") // it has passed
	expect(5, metav1.ConditionTrue, "Ready", 0)
	report(5, "EBUSY")
	expect(5, metav1.ConditionTrue, "Ready", time.Second)
	o.clock.Step(time.Second)
	expect(5, metav1.ConditionFalse, "RefusedByAgent", 0)
	report(6, "EBUSY")
	o.clock.Step(-time.Minute) // a clock that jumps begins anew
	expect(6, metav1.ConditionFalse, "RefusedByAgent", 0)
}

// What a user has changed is answered at once.
func TestWhatAUserWaitsForIsWrittenAtOnce(t *testing.T) {
	o := newCluster(t).office()
	o.mckube("m", "p", 20, 20)
	o.settle(nil, "m")
	for _, budget := range []int64{30_000, 40_000} {
		o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = budget })
		_, err := o.serve("m")
		o.must(err)
		if m := o.get("m"); m.Status.ObservedGeneration != m.Generation {
			t.Errorf("generation %d is observed, of %d", m.Status.ObservedGeneration, m.Generation)
		}
	}
}

// What the next status depends on is never passed over: that a pod was evicted is told by that it is being evicted.
func TestWhatIsNotPassedOver(t *testing.T) {
	becomes := func(kind string, status metav1.ConditionStatus, reason, message string) func(*mcv1.McKubeStatus) {
		return func(s *mcv1.McKubeStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
		}
	}
	for name, tc := range map[string]struct {
		change func(*mcv1.McKubeStatus)
		want   time.Duration
	}{
		"counts": {func(s *mcv1.McKubeStatus) {
			s.Overruns, s.DeadlineMisses, s.LastOverrunTime = 4, 5, &metav1.Time{Time: start.Add(time.Second)}
		}, 5 * time.Second},
		"a count and a pod":     {func(s *mcv1.McKubeStatus) { s.Overruns, s.ReadyPods = 4, 2 }, time.Second},
		"who is raised":         {becomes(mcv1.ConditionEscalated, "True", "Raised", "raised: p, q"), time.Second},
		"who gives way":         {becomes(mcv1.ConditionPreempted, "True", "Moved", "pod q"), 0},
		"pods":                  {func(s *mcv1.McKubeStatus) { s.Pods, s.ReadyPods, s.Overruns, s.Node = 2, 1, 3, "b" }, time.Second},
		"a pod without a core":  {becomes(mcv1.ConditionPlaced, "False", "NotPlaced", "pod p"), time.Second},
		"not ready any longer":  {becomes(mcv1.ConditionReady, "False", "NotPlaced", "pod p"), time.Second},
		"ready, as others are":  {becomes(mcv1.ConditionReady, "True", "Ready", "2 of 2"), time.Second},
		"a generation":          {func(s *mcv1.McKubeStatus) { s.ObservedGeneration++ }, 0},
		"a budget given back":   {becomes(mcv1.ConditionEscalated, "False", "AtLow", ""), 0},
		"a pod that is evicted": {becomes(mcv1.ConditionPreempted, "True", "Evicting", "pod p"), 0},
		"an update begins":      {becomes(mcv1.ConditionEscalated, "True", "Other", "raised: p"), 0},
		"a budget squeezed":     {becomes(mcv1.ConditionDegraded, "True", "Squeezed", "pod p"), 0},
	} {
		before := mcv1.McKubeStatus{ObservedGeneration: 1, Pods: 1, LastOverrunTime: &metav1.Time{Time: start}}
		for _, is := range []func(*mcv1.McKubeStatus){
			becomes(mcv1.ConditionReady, "True", "Ready", "1 of 1"), becomes(mcv1.ConditionEscalated, "True", "Raised", "raised: p"),
			becomes(mcv1.ConditionPreempted, "True", "Moved", "pod p"),
		} {
			is(&before)
		}
		now := *before.DeepCopy()
		if tc.change(&now); rtruntime.Pause(before, now) != tc.want {
			t.Errorf("%s: may wait for %s, want %s", name, rtruntime.Pause(before, now), tc.want)
		}
	}
	before, now := mcv1.McKubeStatus{}, mcv1.McKubeStatus{LastOverrunTime: &metav1.Time{Time: start}}
	if got := rtruntime.Pause(before, now); got != 0 {
		t.Errorf("the first overrun may wait for %s", got)
	}
	now.LastOverrunTime = nil
	becomes(mcv1.ConditionReady, "False", "NotPlaced", "")(&before)
	if becomes(mcv1.ConditionReady, "True", "Ready", "")(&now); rtruntime.Pause(before, now) != 0 {
		t.Error("that it is ready may wait")
	}
}
