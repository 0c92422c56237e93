package rt_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// percent is a server of a period of 10 ms and budgets in percent of it.
func percent(id string, c rt.Criticality, low, high int64) rt.Server {
	return rt.Server{ID: id, Criticality: c, Period: 10_000, Low: low * 100, High: high * 100}
}

func limited(s rt.Server) rt.Server {
	s.Limited = true
	return s
}

var core2 = rt.Core{ID: 2, Sibling: rt.NoSibling, Capacity: 900_000}

func TestAdmit(t *testing.T) {
	reserved := core2
	reserved.Capacity, reserved.EscalationReserve = 700_000, 200_000
	coarse := core2
	coarse.Granularity = 4_000
	for name, c := range map[string]struct {
		core   rt.Core
		placed []rt.Server
		server rt.Server
		want   rt.Verdict
	}{
		"T1 charges the high budget": {
			core2, []rt.Server{percent("a", rt.Low, 50, 80)}, percent("b", rt.High, 20, 40),
			rt.Verdict{Test: "T1", Admitted: true, Need: 400_000, Used: 500_000, Limit: 900_000, Reason: "Fits"},
		},
		"and refuses one more": {
			core2, []rt.Server{percent("a", rt.Low, 51, 80)}, percent("b", rt.High, 20, 40),
			rt.Verdict{Test: "T1", Need: 400_000, Used: 510_000, Limit: 900_000, Reason: "CoreFull"},
		},
		"its own former self is not counted": {
			core2, []rt.Server{percent("a", rt.Low, 50, 50), percent("b", rt.High, 20, 30)}, percent("b", rt.High, 20, 40),
			rt.Verdict{Test: "T1", Admitted: true, Need: 400_000, Used: 500_000, Limit: 900_000, Reason: "Fits"},
		},
		"the granularity is charged": {
			coarse, nil, percent("b", rt.High, 20, 60),
			rt.Verdict{Test: "T1", Need: 1_000_000, Limit: 900_000, Reason: "CoreFull"},
		},
		"T1k charges the low budget": {
			reserved, []rt.Server{percent("a", rt.Middle, 40, 40)}, limited(percent("b", rt.High, 30, 50)),
			rt.Verdict{Test: "T1k", Admitted: true, Need: 300_000, Used: 400_000, Limit: 700_000, Reason: "Fits"},
		},
		"T1k needs a reserve": {
			reserved, []rt.Server{percent("a", rt.Middle, 40, 40)}, limited(percent("b", rt.High, 30, 51)),
			rt.Verdict{Test: "T1k", Need: 300_000, Used: 400_000, Limit: 700_000, Reason: "EscalationReserveTooSmall", Server: "b"},
		},
		"nothing joins a Limited server that has lost its reserve": {
			core2, []rt.Server{limited(percent("a", rt.Middle, 10, 20))}, percent("b", rt.High, 30, 50),
			rt.Verdict{Test: "T1k", Need: 500_000, Used: 100_000, Limit: 900_000, Reason: "EscalationReserveTooSmall", Server: "a"},
		},
		"nonsense is refused": {
			core2, nil, rt.Server{ID: "b", Period: 1000, Low: -5, High: 10},
			rt.Verdict{Test: "T1", Need: rt.Unlimited, Limit: 900_000, Reason: "InvalidServer", Server: "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rt.Admit(c.core, c.placed, c.server); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestVerdictTellsItsNumbers(t *testing.T) {
	v := rt.Admit(core2, []rt.Server{percent("a", rt.Low, 51, 80)}, percent("b", rt.High, 20, 40))
	if got, want := v.String(), "T1: CoreFull: needs 400000 ppm, 510000 of 900000 ppm used"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if v.Free() != 390_000 {
		t.Errorf("free: %d", v.Free())
	}
	v = rt.Admit(core2, nil, limited(percent("b", rt.High, 20, 40)))
	if got := v.String(); !strings.HasPrefix(got, "T1k: EscalationReserveTooSmall (b): ") {
		t.Errorf("got %q", got)
	}
}

func TestT1kCountsTheLargestSteps(t *testing.T) {
	core := rt.Core{Capacity: 700_000, EscalationReserve: 200_000}
	servers := []rt.Server{
		limited(percent("a", rt.High, 20, 30)), limited(percent("b", rt.High, 20, 35)), limited(percent("c", rt.Low, 10, 90)),
		percent("d", rt.Middle, 10, 15),
	}
	for k, want := range []rt.PPM{650_000, 800_000, 900_000, 900_000} {
		if v := rt.T1k(k, core, servers); v.Used != want || !v.Admitted || v.Limit != 900_000 {
			t.Errorf("k=%d: %+v, want %d used", k, v, want)
		}
	}
	if v := rt.T1(core, servers); v.Admitted || v.Used != 900_000 {
		t.Errorf("T1 charges all raises against the capacity alone: %+v", v)
	}
}

func TestKernelNecessary(t *testing.T) {
	half := rt.Budget{Runtime: 475_000, Period: 1_000_000}
	for name, c := range map[string]struct {
		current []rt.Budget
		want    bool
	}{
		"nothing":                  {nil, true},
		"exactly full":             {[]rt.Budget{half, half}, true},
		"one microsecond above":    {[]rt.Budget{half, {Runtime: 475_001, Period: 1_000_000}}, true}, // below the kernel's resolution
		"a little above":           {[]rt.Budget{half, {Runtime: 475_003, Period: 1_000_000}}, false},
		"no period":                {[]rt.Budget{{Runtime: 1}}, false},
		"negative":                 {[]rt.Budget{{Runtime: -1, Period: 10}}, false},
		"a budget beyond measure":  {[]rt.Budget{{Runtime: 1 << 62, Period: 1 << 62}}, false},
		"it knows no high budgets": {[]rt.Budget{{Runtime: 90, Period: 100}}, true},
	} {
		v := rt.KernelNecessary(950_000, c.current)
		if v.Admitted != c.want || v.Test != "Kernel" || v.Admitted != (v.Used <= v.Limit) {
			t.Errorf("%s: %+v, want %v", name, v, c.want)
		}
	}
}

func TestHoldsChoosesTheTestByPolicy(t *testing.T) {
	// Each mode fits into 90 %, but not the largest budget of every server.
	servers := []rt.Server{percent("a", rt.High, 20, 60), percent("b", rt.Low, 40, 40)}
	for policy, want := range map[rt.Policy]rt.Verdict{
		rt.EDF:                 {Test: "T1", Used: 1_000_000, Limit: 900_000, Reason: "CoreFull"},
		rt.EDFVirtualDeadlines: {Test: "EDF-VD", Admitted: true, Used: 800_000, Limit: 900_000, Reason: "Fits"},
	} {
		core := core2
		core.Policy = policy
		if got := rt.Holds(core, servers); got != want {
			t.Errorf("policy %d: got %+v, want %+v", policy, got, want)
		}
	}
	constrained := servers[0]
	constrained.Deadline = 9_000
	if v := rt.EDFVD(core2, []rt.Server{constrained}); v.Admitted || v.Reason != rt.ReasonConstrainedDeadline || v.Server != "a" {
		t.Errorf("constrained deadline: %+v", v)
	}
	// Each mode fits, the change does not: 0.45/(0.9-0.4) = 0.9, and 0.9*0.4+0.1*0.2+0.6 > 0.9.
	if v := rt.EDFVD(core2, []rt.Server{percent("a", rt.High, 45, 60), percent("b", rt.Low, 40, 40)}); v.Reason != rt.ReasonModeSwitch {
		t.Errorf("mode switch: %+v", v)
	}
}

// By hand: each server above may run late in one period and at once in the next.
func TestAMCrtb(t *testing.T) {
	core := rt.Core{Capacity: rt.OneCore, Policy: rt.FixedPriority}
	task := func(id string, c rt.Criticality, period, low, high int64, priority int) rt.Server {
		return rt.Server{ID: id, Criticality: c, Period: period, Low: low, High: high, Priority: priority}
	}
	for name, c := range map[string]struct {
		servers []rt.Server
		want    string // the server that is late; empty when all are in time
	}{
		"alone": {[]rt.Server{task("a", rt.High, 1000, 500, 950, 1)}, ""},
		// b waits for two budgets of a, one late and one early: 2*300 + 300 <= 1000.
		"deferred execution fits":       {[]rt.Server{task("a", rt.Low, 800, 300, 300, 2), task("b", rt.Low, 1000, 300, 300, 1)}, ""},
		"deferred execution counts":     {[]rt.Server{task("a", rt.Low, 800, 350, 350, 2), task("b", rt.Low, 1000, 350, 350, 1)}, "b"},
		"equal priorities hold up both": {[]rt.Server{task("a", rt.Low, 1000, 400, 400, 1), task("b", rt.Low, 1000, 400, 400, 1)}, "a"},
		// With 400 in every period of a, b would be late. Squeezed from its second period on, a leaves
		// it 3400+2*200+6*200.
		"squeezing makes room": {[]rt.Server{task("a", rt.Low, 1000, 400, 400, 2), task("b", rt.High, 5000, 300, 3400, 1)}, ""},
		"but not any room":     {[]rt.Server{task("a", rt.Low, 1000, 400, 400, 2), task("b", rt.High, 5000, 300, 3401, 1)}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			v := rt.AMCrtb(core, c.servers)
			if v.Admitted != (c.want == "") || v.Server != c.want {
				t.Errorf("%+v, want %q late", v, c.want)
			}
		})
	}
}
