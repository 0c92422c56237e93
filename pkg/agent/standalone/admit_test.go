package standalone_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func node(backend string, cores ...int) table.Report {
	r := table.Report{Backend: backend, GranularityUs: 100}
	for _, id := range cores {
		r.Cores = append(r.Cores, table.CoreReport{ID: id, CapacityPpm: 900_000})
	}
	return r
}

const pair = `
servers:
- {name: a, criticality: High, period: 10ms, runtime_low: 2ms, runtime_hi: 5ms, command: [a]}
- {name: b, criticality: Low, period: 20ms, runtime_low: 4ms, cgroup: /b}
`

func TestAdmitPlansRaises(t *testing.T) {
	got, err := standalone.Admit(parse(t, pair), node("hcbs", 1), standalone.Group)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Servers[0], got.Servers[1]; a.Cgroup != "/mainspring/a" || b.Cgroup != "/b" || a.Core != 1 || b.Core != 1 {
		t.Errorf("placed %+v and %+v", a, b)
	}
	if p := got.Plan(1); len(p.Raise) != 1 || p.Raise[0].ID != "a" || p.Raise[0].ToUs != 5000 || p.ThresholdPpm != 900_000 {
		t.Errorf("plan %+v", p)
	}
}

func TestAdmitSpreads(t *testing.T) {
	text := strings.ReplaceAll(pair, "period: 20ms, runtime_low: 4ms", "period: 10ms, runtime_low: 5ms")
	got, err := standalone.Admit(parse(t, text), node("hcbs", 1, 2), standalone.Group)
	if err != nil {
		t.Fatal(err)
	}
	if got.Servers[0].Core == got.Servers[1].Core || len(got.Plans) != 2 {
		t.Errorf("placed %+v", got.Servers)
	}
}

func TestAdmitRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, backend, reason string }{
		{"what is too much", strings.Replace(pair, "runtime_hi: 5ms", "runtime_hi: 8ms", 1), "hcbs", rt.ReasonCoreFull},
		{"what is too much for the named core", strings.NewReplacer("runtime_hi: 5ms", "runtime_hi: 8ms, core: 1", "/b", "/b, core: 1").Replace(pair), "hcbs", rt.ReasonCoreFull},
		{"what answers too late under fixed priorities", strings.Replace(pair, "period: 20ms", "period: 20ms, deadline: 5ms", 1), "fifo", rt.ReasonResponseTime},
	} {
		_, err := standalone.Admit(parse(t, c.text), node(c.backend, 1), standalone.Group)
		var refused *standalone.RefusedError
		if !errors.As(err, &refused) || refused.Verdict.Reason != c.reason || refused.Core != 1 {
			t.Errorf("%s: error %v; want core 1 refused for %s", c.name, err, c.reason)
		}
	}
}

// The example of the documentation must start on any machine: on one that ends budgets at a tick of 4 ms, too.
func TestTheExampleIsAdmittedEverywhere(t *testing.T) {
	text, err := os.ReadFile("../../../examples/standalone/two-loops.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for backend, granularity := range map[string]int64{"rtgroup": 4_000, "deadline": 4_000, "cfs": 4_000, "fifo": 100} {
		here := node(backend, 1)
		here.GranularityUs = granularity
		if _, err := standalone.Admit(parse(t, string(text)), here, standalone.Group); err != nil {
			t.Errorf("backend %s, granularity %d us: %v", backend, granularity, err)
		}
	}
}

func TestAdmitRefusesCoresThatAreNotGiven(t *testing.T) {
	_, err := standalone.Admit(parse(t, one), node("hcbs", 2, 3), standalone.Group)
	if err == nil || !strings.Contains(err.Error(), "core 1 takes no real-time work; want one of 2 3") {
		t.Errorf("error %v", err)
	}
}

func TestPrioritiesAreByDeadline(t *testing.T) {
	got := standalone.Priorities(parse(t, pair+"- {name: c, period: 5ms, runtime_low: 1ms, priority: 3, pid: 4}\n- {name: d, period: 20ms, runtime_low: 1ms, pid: 5}\n"))
	if got["a"] <= got["b"] || got["b"] != got["d"] || got["c"] != 3 || got["b"] < standalone.LeastPriority {
		t.Errorf("priorities %v", got)
	}
}

// With backend fifo the fast path gives priorities by deadline. Admission by others of the file would promise what nobody keeps: here High comes first by the
// file, and last by deadline.
func TestPrioritiesThatNobodyWouldHaveAreRefused(t *testing.T) {
	const text = `
servers:
- {name: h, criticality: High, period: 26ms, runtime_low: 3640us, runtime_hi: 4331us, priority: 80, command: [h]}
- {name: l, criticality: Low, period: 22ms, runtime_low: 9460us, priority: 20, command: [l]}
`
	_, err := standalone.Admit(parse(t, text), node("fifo", 1), standalone.Group)
	for _, want := range []string{`servers[0] "h": priority 80; want none with backend fifo`, `servers[1] "l": priority 20; want none with backend fifo`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want %s", err, want)
		}
	}
	if _, err := standalone.Admit(parse(t, text), node("rtgroup", 1), standalone.Group); err != nil {
		t.Errorf("with rtgroup, where commands get them: %v", err)
	}
}

func TestAdmissionByBandwidthAlone(t *testing.T) {
	text := strings.ReplaceAll(pair, "runtime_low: 4ms", "runtime_low: 7ms")
	if _, err := standalone.Admit(parse(t, text), node("fifo", 1), standalone.Group); err == nil {
		t.Fatal("the response-time analysis takes it; want a set for which the tests differ")
	}
	if _, err := standalone.Admit(parse(t, "admission: T1"+text), node("fifo", 1), standalone.Group); err != nil {
		t.Error(err)
	}
}
