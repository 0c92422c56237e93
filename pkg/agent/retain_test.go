package agent_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Somebody deletes the RTNode by hand. The controller makes it again; until then, and for minutes if it must be,
// the containers keep what they have, as they come and go.
func TestAnRTNodeThatVanishesTakesNothingAway(t *testing.T) {
	w := newWorld(t)
	fake := clocktesting.NewFakeClock(time.Now())
	w.clock = fake
	w.fast.start("x")
	stop := w.agent()
	p, other := w.pod("a"), w.pod("b")
	r := w.rtNode(serverFor(p), serverFor(other))
	_, group := w.run(p, 1)
	_, _ = w.run(other, 2)
	table := func(what string, holds func(f *fakeFastPath) bool) {
		t.Helper()
		w.eventuallyTable(what, func(f *fakeFastPath) bool { fake.Step(time.Second); return holds(f) })
	}
	table("two servers with groups", func(f *fakeFastPath) bool {
		return len(f.table.Servers) == 2 && f.table.Servers[0].Cgroup != "" && f.table.Servers[1].Cgroup != ""
	})
	w.must(w.Delete(t.Context(), r))
	w.must(w.Delete(t.Context(), other, client.GracePeriodSeconds(0)))
	kept := func(f *fakeFastPath) bool { return len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup == group }
	table("the one whose pod is there", kept)

	// An agent that starts now has never seen the RTNode.
	stop()
	w.agent()
	pulled := w.fast.pulls()
	table("what is in force", func(f *fakeFastPath) bool { return f.pulled > pulled+20 && kept(f) })

	// It is made anew, and all is as it was.
	w.rtNode(serverFor(p))
	table("the new one", kept)
	w.must(w.Get(t.Context(), client.ObjectKey{Name: w.node.Name}, r))

	// It goes for good: in the end nothing is kept.
	w.must(w.Delete(t.Context(), r))
	left := 0
	table("nothing", func(f *fakeFastPath) bool { left++; return len(f.table.Servers) == 0 })
	if left < 200 {
		t.Errorf("everything was let go of within %d s", left)
	}
}

// change changes the RTNode's spec, whose status the agent writes all the time.
func (w *world) change(do func(s *v1alpha1.RTNodeSpec)) *v1alpha1.RTNode {
	w.Helper()
	r := &v1alpha1.RTNode{}
	w.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.Get(w.Context(), client.ObjectKey{Name: w.node.Name}, r); err != nil {
			return err
		}
		do(&r.Spec)
		return w.Update(w.Context(), r)
	}))
	return r
}

// What somebody wrote into the RTNode by hand takes nothing from a container that runs, and holds nobody up.
func TestASpoiltSpecIsRefusedAndHarmless(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	w.agent()
	p := w.pod("a")
	w.rtNode(serverFor(p))
	_, group := w.run(p, 1)
	whole := func(f *fakeFastPath) bool {
		return len(f.table.Servers) == 1 && f.table.Servers[0].Cgroup == group && f.table.Servers[0].HighUs == 4000 && f.table.Servers[0].Core == 1 &&
			len(f.table.Plans) == 1 && f.table.Plans[0].ThresholdPpm == 900_000
	}
	w.eventuallyTable("a server with a group", whole)
	for _, spoil := range []struct {
		what string
		do   func(s *v1alpha1.RTNodeSpec)
		say  string
	}{
		{"a budget beyond its period", func(s *v1alpha1.RTNodeSpec) { s.Servers[0].BudgetHighUs = math.MaxInt64 }, "9223372036854775807"},
		{"two cores", func(s *v1alpha1.RTNodeSpec) { s.Servers[0].Cores = []int32{0, 1} }, "cores has 2 entries"},
	} {
		var good v1alpha1.RTNodeSpec
		r := w.change(func(s *v1alpha1.RTNodeSpec) {
			good = *s.DeepCopy()
			spoil.do(s)
		})
		w.eventuallyStatus(spoil.what, func(s v1alpha1.RTNodeStatus) bool {
			return s.ObservedGeneration == r.Generation && len(s.Servers) == 1 && strings.Contains(s.Servers[0].Error, spoil.say) &&
				s.Servers[0].BudgetUs == 2000 && strings.HasPrefix(condition(s, v1alpha1.ConditionReady), "False SpecRefused")
		})
		w.fast.see(func(f *fakeFastPath) {
			if !whole(f) || f.table.Generation != r.Generation {
				t.Errorf("%s: the table is %+v", spoil.what, f.table)
			}
		})
		r = w.change(func(s *v1alpha1.RTNodeSpec) { *s = good })
		w.eventuallyStatus("that it is mended", func(s v1alpha1.RTNodeStatus) bool {
			return s.ObservedGeneration == r.Generation && strings.HasPrefix(condition(s, v1alpha1.ConditionReady), "True")
		})
	}
}

// A plan that the API server of today refuses, and one without its bounds takes, is left out alone: nothing is raised on that core.
func TestASpoiltPlanKeepsNobodyElseBack(t *testing.T) {
	server := v1alpha1.RTServer{
		PodUID: "p", Container: "c", Criticality: "High", PeriodUs: 10_000, DeadlineUs: 10_000, BudgetLowUs: 1000, BudgetHighUs: 2000, Level: "low",
		Mode: "Elastic", Cores: []int32{1},
	}
	r := &v1alpha1.RTNode{Spec: v1alpha1.RTNodeSpec{Servers: []v1alpha1.RTServer{server}, Plan: []v1alpha1.RTCorePlan{
		{Core: 1, ThresholdPpm: -5}, {Core: -3, ThresholdPpm: 1}, {Core: 2, ThresholdPpm: 900_000},
	}}}
	got, faults := agent.Build(r, found(r))
	if len(got.Servers) != 1 || len(got.Plans) != 1 || got.Plans[0].Core != 2 || got.Validate() != nil {
		t.Errorf("the table is %+v; want the server and the plan of core 2", got)
	}
	for id, want := range map[string]string{
		got.Servers[0].ID: "plan of its core: plans[0]: thresholdPpm -5", "plan of core 1": "thresholdPpm -5", "plan of core -3": "core -3",
	} {
		if !strings.Contains(faults[id], want) {
			t.Errorf("faults of %s are %q; want %q", id, faults[id], want)
		}
	}
}

// Whatever an RTNode says, the fast path takes the table that is made of it.
func FuzzBuild(f *testing.F) {
	f.Add(int64(10_000), int64(10_000), int64(2_000), int64(4_000), int64(3_000), int32(1), "low", "Elastic", "High", int32(1), int32(900_000), int32(0))
	f.Add(int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(0), int64(-4), int32(-3), "", "", "", int32(-1), int32(-5), int32(-1))
	f.Fuzz(func(t *testing.T, period, deadline, low, high, level int64, core int32, name, mode, criticality string, overruns, threshold, raised int32) {
		r := &v1alpha1.RTNode{}
		for i := range 3 {
			r.Spec.Servers = append(r.Spec.Servers, v1alpha1.RTServer{
				PodUID: "p", Container: fmt.Sprint("c", i), Criticality: criticality, PeriodUs: period, DeadlineUs: deadline, BudgetLowUs: low,
				BudgetHighUs: high, Levels: []v1alpha1.RTLevel{{Name: name, BudgetUs: level}}, Level: name, Mode: mode, Cores: []int32{core},
				Overruns: overruns, Periods: overruns, DwellUs: level,
			})
		}
		r.Spec.Plan = []v1alpha1.RTCorePlan{{Core: core, ThresholdPpm: int64(threshold), MaxRaised: raised}, {Core: 1, ThresholdPpm: 1}}
		if core == 1 {
			r.Spec.Plan = r.Spec.Plan[:1] // the API server takes one plan of a core
		}
		got, _ := agent.Build(r, found(r))
		if err := got.Validate(); err != nil {
			t.Fatalf("of %+v: %v", r.Spec, err)
		}
	})
}
