package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// wellView is a view in which all is well.
func wellView(t *testing.T) agent.View {
	r := golden(t, "rtnode.yaml")
	r.UID = "r"
	tab, _ := agent.Build(r, found(r))
	report := table.Report{Instance: "x", Generation: 7, Backend: "rtgroup", Guarantee: "hard within a tick", GranularityUs: 4000, Realtime: true, Locked: true,
		Cores: []table.CoreReport{{ID: 1, CapacityPpm: 900_000, PromisedPpm: 400_000}, {ID: 2, CapacityPpm: 900_000}}}
	for _, s := range tab.Servers {
		report.Servers = append(report.Servers, table.ServerReport{ID: s.ID, BudgetUs: s.LowUs, PeriodUs: s.PeriodUs, Cores: []int{s.Core}, LevelUs: s.LowUs})
	}
	return agent.View{
		World: &agent.World{RTNode: r}, Applied: &agent.Applied{RTNode: "r", Table: tab, Instance: "x"},
		Counted: &agent.Counted{Report: report}, Now: start,
		Cores: []rt.Core{{ID: 1, NUMA: 1, Sibling: 3, Capacity: 900_000}, {ID: 2, Sibling: rt.NoSibling, Capacity: 900_000}},
	}
}

func condition(s v1alpha1.RTNodeStatus, kind string) string {
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func TestTheStatusOfANodeInOrder(t *testing.T) {
	t.Parallel()
	v := wellView(t)
	v.Counted.Report.Servers[0].LevelUs = 3_500 // a partial raise is still level mid
	v.Counted.Servers = map[string]agent.Total{"a/app": {Counts: agent.Counts{Overruns: 12, Misses: 3, Drift: 1}, LastOverrun: start}}
	s := v.Status()
	if s.ObservedGeneration != 7 || s.Backend != "rtgroup" || s.BudgetGranularityUs != 4000 || s.AgentVersion != "test" || len(s.Servers) != 4 {
		t.Errorf("%+v", s)
	}
	if got, want := s.Cores[0], (v1alpha1.RTCoreStatus{ID: 1, NUMA: 1, Sibling: 3, CapacityPpm: 900_000, ReservedPpm: 400_000}); got != want || s.Cores[1].Sibling != -1 {
		t.Errorf("cores: %+v", s.Cores)
	}
	a := s.Servers[0]
	if a.PodUID != "a" || a.BudgetUs != 2000 || a.PeriodUs != 10_000 || a.Level != "mid" || a.Overruns != 12 || a.Misses != 3 || a.Drift != 1 || a.LastOverrunTime == nil || a.Cores[0] != 1 {
		t.Errorf("server: %+v", a)
	}
	for kind, want := range map[string]string{
		v1alpha1.ConditionReady: "True Applied", v1alpha1.ConditionAgentRealtime: "True Realtime", v1alpha1.ConditionDrifted: "False Steady",
	} {
		if got := condition(s, kind); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

func TestReadySaysWhatIsWrongFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(v *agent.View)
		want  string
	}{
		{"not asked yet", func(v *agent.View) { v.Counted = nil }, "False FastPathUnreachable: The fast path has not been asked"},
		{"gone", func(v *agent.View) { v.Counted.Err = errors.New("no such socket") }, "False FastPathUnreachable: The fast path does not answer: no such socket"},
		{"blocked", func(v *agent.View) {
			v.Counted.Report.Backend = "blocked"
			v.Counted.Report.Missing = []string{"RT_GROUP_SCHED"}
		}, "False NoBackend"},
		{"turned off", func(v *agent.View) {
			v.Counted.Report.Unenforced = "kernel.sched_rt_runtime_us is -1"
		}, "False NoBackend: The kernel enforces no budget now: kernel.sched_rt_runtime_us is -1"},
		{"not applied", func(v *agent.View) { v.Applied = nil }, "False NotApplied"},
		{"failed", func(v *agent.View) { v.Applied = &agent.Applied{RTNode: "r", Err: client.ErrUnreachable} }, "False NotApplied: The spec could not be given"},
		{"refused", func(v *agent.View) {
			v.Applied = &agent.Applied{RTNode: "r", Err: &client.StatusError{Code: 400, Reason: "cgroup twice"}}
		}, "False TableRefused: the fast path refuses the table: cgroup twice"},
		{"a server", func(v *agent.View) { v.Counted.Report.Servers[1].Error = "no such group" }, "False SpecRefused: 1 of 4"},
		{"another", func(v *agent.View) { v.Applied.Faults = map[string]string{"c/app": "cores has 2 entries"} }, "False SpecRefused: 1 of 4"},
		{"long", func(v *agent.View) { v.Counted.Err = errors.New(strings.Repeat("é", 40_000)) }, "False FastPathUnreachable"},
	} {
		v := wellView(t)
		c.spoil(&v)
		s := v.Status()
		got := condition(s, v1alpha1.ConditionReady)
		if !strings.HasPrefix(got, c.want) || len(got) > 5000 {
			t.Errorf("%s: %.300s, want %s", c.name, got, c.want)
		}
	}
}

// A container that its budget does not hold as a whole is told of beside what was applied, which it was.
func TestEscapesAreNoErrors(t *testing.T) {
	t.Parallel()
	v := wellView(t)
	v.Counted.Report.Servers[0].Escapes = "3 threads are elsewhere"
	s := v.Status()
	if s.Servers[0].Escapes != "3 threads are elsewhere" || s.Servers[0].Error != "" || s.Servers[1].Escapes != "" {
		t.Errorf("%+v", s.Servers)
	}
	if got := condition(s, v1alpha1.ConditionReady); !strings.HasPrefix(got, "True Applied") {
		t.Errorf("Ready: %s; want it to stay", got)
	}
}

// The generation counts for one RTNode alone: another of the name begins at 1 again.
func TestTheObservedGenerationIsOfThisRTNode(t *testing.T) {
	t.Parallel()
	v := wellView(t)
	v.Applied.RTNode = "another"
	v.World.RTNode.Status.ObservedGeneration = 1
	if s := v.Status(); s.ObservedGeneration != 1 {
		t.Errorf("%d", s.ObservedGeneration)
	}
	v.Applied = nil
	if s := v.Status(); s.ObservedGeneration != 1 {
		t.Errorf("%d before anything was applied", s.ObservedGeneration)
	}
}

// While the fast path has never answered, what was last reported stays, of those that are still asked for.
func TestAnAgentThatStartsKeepsWhatWasReported(t *testing.T) {
	t.Parallel()
	v := wellView(t)
	v.World.RTNode.Status = v.Status()
	v.World.RTNode.Spec.Servers = v.World.RTNode.Spec.Servers[:2]
	v.Counted = nil
	s := v.Status()
	if len(s.Servers) != 2 || s.Servers[0].BudgetUs != 2000 || s.Backend != "rtgroup" || len(s.Cores) != 2 {
		t.Errorf("%+v", s)
	}
	if got := condition(s, v1alpha1.ConditionAgentRealtime); !strings.HasPrefix(got, "Unknown") {
		t.Errorf("AgentRealtime: %s", got)
	}
}

func TestConditionsKeepTheirTimes(t *testing.T) {
	t.Parallel()
	v := wellView(t)
	alive := metav1.Condition{Type: v1alpha1.ConditionAgentAlive, Status: metav1.ConditionTrue, Reason: "x"}
	v.Before = append(v.Status().Conditions, alive)
	v.Now, v.Drifted = start.Add(time.Hour), true
	s := v.Status()
	ready, drifted := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDrifted)
	if !ready.LastTransitionTime.Time.Equal(start) || !drifted.LastTransitionTime.Time.Equal(start.Add(time.Hour)) || drifted.Status != metav1.ConditionTrue {
		t.Errorf("%+v", s.Conditions)
	}
	if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAgentAlive) != nil {
		t.Error("the agent writes the controller's condition")
	}
}

func TestWhatHappenedIsToldWithNumbers(t *testing.T) {
	t.Parallel()
	spec := golden(t, "rtnode.yaml").Spec.Servers[0]
	low := table.ServerReport{ID: "a/app", LevelUs: 2000}
	for _, c := range []struct {
		name string
		from table.ServerReport
		do   func(s *table.ServerReport)
		want string
	}{
		{"nothing", low, func(*table.ServerReport) {}, ""},
		{"a raise", low, func(s *table.ServerReport) { s.Raises, s.Overruns, s.LevelUs = 1, 1, 4000 }, "Escalated: Raised once, now 4000 us"},
		{"up and down", low, func(s *table.ServerReport) { s.Raises, s.Recoveries = 3, 3 }, "Escalated: Raised 3 times; Recovered: Gave its raised budget back 3 times"},
		{"less than wanted", low, func(s *table.ServerReport) { s.Partial, s.LevelUs = 1, 2500 }, "PartiallyEscalated: Raised once by less"},
		{"no room", low, func(s *table.ServerReport) { s.Denied = 2 }, "EscalationDenied: Could not be raised 2 times"},
		{"the kernel", low, func(s *table.ServerReport) { s.Refused = 1 }, "EscalationRefused: The kernel refused"},
		{"at the top", table.ServerReport{ID: "a/app", LevelUs: 4000}, func(s *table.ServerReport) { s.Overruns, s.Fault = 5, true }, "OverrunAtHighBudget: Used up its highest budget 5 times; Faulted: Keeps"},
		{"at the top, perhaps", low, func(s *table.ServerReport) { s.Overruns, s.Raises, s.LevelUs = 5, 1, 4000 }, "Escalated: Raised once"},
		{"another master", low, func(s *table.ServerReport) { s.Escapes = "3 threads are elsewhere" }, "EscapesBudget: Is not governed as a whole: 3 threads are elsewhere: "},
		{"squeezed", low, func(s *table.ServerReport) { s.Squeezes, s.LevelUs = 1, 1000 }, "Squeezed: Gave way"},
		{"restored", table.ServerReport{ID: "a/app", LevelUs: 1000}, func(s *table.ServerReport) { s.LevelUs = 2000 }, "RestoredBudget: Has its budget of 2000 us again"},
		{"misses", low, func(s *table.ServerReport) { s.Misses = 7 }, "DeadlineMissed: Missed its deadline 7 times"},
		{"drift", low, func(s *table.ServerReport) { s.Drift = 1 }, "Drifted: Something else changed its budget or core once"},
	} {
		now := c.from
		c.do(&now)
		var got []string
		for _, e := range agent.Happened(spec, c.from, now) {
			got = append(got, e.Reason+": "+e.Message)
			if !strings.Contains(e.Message, "container app of pod default/high on core 1 of node n") {
				t.Errorf("%s: %q does not say where", c.name, e.Message)
			}
		}
		wants := strings.Split(c.want, "; ")
		if c.want == "" {
			wants = nil
		}
		if len(got) != len(wants) {
			t.Errorf("%s: %v, want %v", c.name, got, wants)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], wants[i]) {
				t.Errorf("%s: %s, want %s", c.name, got[i], wants[i])
			}
		}
	}
}
