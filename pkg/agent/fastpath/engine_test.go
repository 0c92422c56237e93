package fastpath_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func TestATableIsPutInForce(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	reserved := high("b", "/b", 1)
	reserved.Mode = table.Reserved
	n.apply(tableOf(3, high("a", "/a", 0), reserved))
	if k.groups["/a"].budgetUs != 2_000 || k.groups["/b"].budgetUs != 4_000 {
		t.Errorf("budgets %d and %d; want low, and high for mode Reserved", k.groups["/a"].budgetUs, k.groups["/b"].budgetUs)
	}
	n.programs.waited[n.programs.slots[100]] = ebpf.Histogram{Count: [24]uint64{3: 99, 5: 1}, MaxNs: 20_000}
	report := n.Report()
	if report.Generation != 3 || len(report.Servers) != 2 || report.Lost != 7 || report.Unseen != 5 {
		t.Errorf("%+v", report)
	}
	if a := n.reported("a"); a.BudgetUs != 2_000 || a.PeriodUs != 10_000 || !slices.Equal(a.Cores, []int{0}) || a.Error != "" ||
		*a.RunQueue != (table.Waits{P50Us: 8, P99Us: 8, MaxUs: 20}) {
		t.Errorf("%+v", a)
	}
	a, b := n.programs.Config(n.programs.slots[100]), n.programs.Config(n.programs.slots[101])
	if a.BudgetNs != 2_000_000 || a.AlarmNs != 1_800_000 || a.Flags&(ebpf.FlagLive|ebpf.FlagAlarm) != ebpf.FlagLive|ebpf.FlagAlarm {
		t.Errorf("the programs watch %+v; want an alarm a lead before the end", a)
	}
	if b.BudgetNs != 4_000_000 || b.AlarmNs >= 2_000_001 {
		t.Errorf("the programs watch %+v; want an alarm at low", b)
	}
}

// A server has nothing of how long another waited that had its slot before.
func TestASlotThatChangesHandsHasNoWaitOfTheOther(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	slot := n.programs.slots[100]
	n.programs.waited[slot] = ebpf.Histogram{Count: [24]uint64{3: 99}, MaxNs: 20_000}
	n.apply(tableOf(2))
	n.apply(tableOf(3, high("b", "/b", 0)))
	if got := n.programs.slots[101]; got != slot {
		t.Fatalf("it has slot %d; want that of the other, %d", got, slot)
	}
	if w := n.reported("b").RunQueue; w != nil && *w != (table.Waits{}) {
		t.Errorf("it has waited %+v", *w)
	}
}

func TestAnInvalidTableChangesNothing(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	bad := high("a", "/a", 0)
	bad.LowUs = -1
	err := n.Apply(tableOf(2, bad))
	var invalid *fastpath.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("want an InvalidError: %v", err)
	}
	if n.Report().Generation != 1 || k.groups["/a"].budgetUs != 2_000 {
		t.Error("a part of it was put in force")
	}
}

func TestTheSameTableAgainWritesNothing(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	sets, log := k.groups["/a"].sets, len(k.log)
	n.apply(tableOf(2, high("a", "/a", 0)))
	if k.groups["/a"].sets != sets || len(k.log) != log {
		t.Errorf("it wrote again: %v", k.log[log:])
	}
}

func TestAnAlarmRaises(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	n.now.Add(12_000_000)
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()-30_000))
	if got := k.groups["/a"].budgetUs; got != 4_000 {
		t.Fatalf("budget %d us; want 4000: %+v", got, n.reported("a"))
	}
	config := n.programs.Config(n.programs.slots[100])
	if config.BudgetNs != 4_000_000 || config.Flags&ebpf.FlagRaised == 0 {
		t.Errorf("the programs watch %+v; want the raised budget, and to be told of clean windows", config)
	}
	if a := n.reported("a"); a.Raises != 1 || a.LevelUs != 4_000 || a.Overruns != 1 || a.LastOverrun == 0 {
		t.Errorf("%+v", a)
	}
	samples := n.Samples()
	if len(samples) != 1 || samples[0].Server != "a" || samples[0].Written-samples[0].Instant != 30_000 || samples[0].LeadNs != 200_000 {
		t.Errorf("%+v", samples)
	}
	if r := n.Report().React; r.MaxUs != 30 {
		t.Errorf("%+v", r)
	}
}

func TestEventsOfOthersAreVoid(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	stale := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	stale.Generation--
	n.send(0, stale)
	beyond := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	beyond.Slot = table.MaxServers
	n.send(0, beyond)
	elsewhere := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	n.send(1, elsewhere) // the other core has no server in that slot
	if got := k.groups["/a"].budgetUs; got != 2_000 {
		t.Errorf("budget %d us; want 2000", got)
	}
}

func TestAMoveLeavesNoServerWithoutACore(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	stale := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	n.programs.State(int(stale.Slot)).Overruns = 5
	n.now.Add(1_000_000_000) // since the start, of which nothing is promised any more
	n.apply(tableOf(2, high("a", "/a", 1)))
	if k.groups["/a"].core != 1 || k.groups["/a"].closed {
		t.Errorf("core %d, log %v", k.groups["/a"].core, k.log)
	}
	n.send(0, stale)
	if k.groups["/a"].budgetUs != 2_000 {
		t.Error("an event from before the move raised")
	}
	*n.programs.State(int(stale.Slot)) = ebpf.State{Overruns: 2}
	if a := n.reported("a"); a.Overruns != 7 {
		t.Errorf("%d overruns; want those of both cores", a.Overruns)
	}
	n.send(1, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	if k.groups["/a"].budgetUs != 4_000 {
		t.Error("it is not governed on its new core")
	}
}

func TestWhatCannotBeDoneIsToldAndTriedAgain(t *testing.T) {
	k := newKernel("/a")
	k.openErrs["/a"] = actuator.ErrNoRoom
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0), high("b", "", 0), high("c", "/c", 7)))
	for id, want := range map[string]string{"a": "no room", "b": "does not run", "c": "core 7 takes no real-time work; want one of [0 1]"} {
		if got := n.reported(id).Error; !strings.Contains(got, want) {
			t.Errorf("%s: %q; want %q", id, got, want)
		}
	}
	k.change(func() { delete(k.openErrs, "/a") })
	n.sweep() // too early
	if len(k.log) != 0 {
		t.Error("it was tried again at once")
	}
	n.now.Add(200_000_000)
	n.sweep()
	if a := n.reported("a"); a.Error != "" || a.BudgetUs != 2_000 {
		t.Errorf("%+v", a)
	}
}

func TestAContainerThatIsRestartedIsGovernedAgain(t *testing.T) {
	k := newKernel("/a1", "/a2")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a1", 0)))
	k.change(func() {
		k.groups["/a1"].checkErr = actuator.ErrGone
		delete(k.groups, "/a1")
	})
	n.sweep()
	if a := n.reported("a"); a.Error == "" || len(n.programs.slots) != 0 {
		t.Errorf("%+v is governed though it has gone: %v", a, n.programs.slots)
	}
	n.apply(tableOf(2, high("a", "/a2", 0)))
	if a := n.reported("a"); a.Error != "" || k.groups["/a2"].budgetUs != 2_000 {
		t.Errorf("%+v", a)
	}
}

func TestWhoLeavesTheTableGetsBackWhatItHad(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0), high("b", "/b", 0)))
	slot := n.programs.slots[100]
	n.apply(tableOf(2, high("b", "/b", 0)))
	if !k.groups["/a"].restored || k.groups["/b"].closed {
		t.Errorf("%v", k.log)
	}
	if n.programs.Config(slot).Flags != 0 || len(n.programs.slots) != 1 {
		t.Error("the programs still watch it")
	}
}

func TestTheProcessAfterGoesOnAlone(t *testing.T) {
	dir, k := t.TempDir(), newKernel("/a")
	first := start(t, k, dir)
	first.apply(tableOf(4, high("a", "/a", 0)))
	first.end()
	k.groups["/a"].budgetUs = 4_000 // it was killed after a raise
	second := start(t, k, dir)
	if second.Report().Generation != 4 {
		t.Fatalf("%+v", second.Report())
	}
	if a := second.reported("a"); a.LevelUs != a.BudgetUs {
		t.Errorf("a budget of %d us is in force, %d us is granted", a.BudgetUs, a.LevelUs)
	}
	// What the former process raised is given back when the dwell is over.
	for range 200 {
		second.now.Add(100_000_000)
		second.wake(0)
	}
	if got := k.groups["/a"].budgetUs; got != 2_000 {
		t.Errorf("budget %d us; want 2000", got)
	}
}

func TestATableThatCannotBeReadIsAsGoodAsNone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "table.json"), []byte(`{"servers":[{"id":""}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, newKernel(), dir)
	if r := n.Report(); r.Generation != 0 || len(r.Servers) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestATableThatCannotBeKeptIsNotPutInForce(t *testing.T) {
	dir, k := t.TempDir(), newKernel("/a")
	n := start(t, k, filepath.Join(dir, "missing"))
	if err := n.Apply(tableOf(1, high("a", "/a", 0))); err == nil || len(k.log) != 0 {
		t.Errorf("%v %v", err, k.log)
	}
}

func TestRestorePutsEverythingBack(t *testing.T) {
	dir, k := t.TempDir(), newKernel("/a")
	n := start(t, k, dir)
	n.apply(tableOf(1, high("a", "/a", 0)))
	if err := n.Restore(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "table.json")); !errors.Is(err, os.ErrNotExist) || k.restored != 1 || !k.groups["/a"].restored {
		t.Errorf("%v, restored %d, %v", err, k.restored, k.log)
	}
}

func TestBudgetsThatWeEnforce(t *testing.T) {
	k := newKernel("/a")
	k.enforce = true
	n := start(t, k, t.TempDir())
	low := high("a", "/a", 0)
	low.Criticality = "Low"
	n.apply(tableOf(1, low))
	if n.programs.Config(n.programs.slots[100]).Flags&ebpf.FlagEnforce == 0 {
		t.Fatal("the programs do not tell the end of its budget")
	}
	n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
	if !k.groups["/a"].throttled {
		t.Error("it was not stopped at the end of its budget")
	}
	n.send(0, n.programs.event(100, ebpf.KindWindow, n.now.Load()))
	if k.groups["/a"].throttled {
		t.Error("it was not let go at the next window")
	}
}

func TestSomethingElseChangesABudget(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	k.change(func() { k.groups["/a"].drift = []string{"cpu.rt_runtime_us was 1000; want 2000"} })
	n.sweep()
	if a := n.reported("a"); a.Drift == 0 || a.Threads != 3 {
		t.Errorf("%+v", a)
	}
}

func TestUngovernedThreadsAreTold(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	k.change(func() { k.groups["/a"].below = 3 })
	for range 10 {
		n.sweep()
	}
	if a := n.reported("a"); !strings.Contains(a.Escapes, "3 threads are in control groups below the container's own") || a.Error != "" {
		t.Errorf("escapes %q, error %q; want the threads that are not governed, and no error: the rest is", a.Escapes, a.Error)
	}
	k.change(func() { k.groups["/a"].below = 0 })
	for range 10 {
		n.sweep()
	}
	if a := n.reported("a"); a.Escapes != "" {
		t.Errorf("escapes %q; want nothing: they have gone", a.Escapes)
	}
}

func TestABudgetByHand(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	one := 1
	for name, c := range map[string]struct {
		request client.SetRequest
		code    int
		want    string
	}{
		"nobody":       {client.SetRequest{RuntimeUs: 3_000}, 404, `""`},
		"a stranger":   {client.SetRequest{Server: "c-", RuntimeUs: 3_000}, 404, `"c-"`},
		"too little":   {client.SetRequest{Server: "a", RuntimeUs: 1_999}, 409, "want 2000 us to 4000 us"},
		"too much":     {client.SetRequest{Server: "a", RuntimeUs: 4_001}, 409, "want 2000 us to 4000 us"},
		"other period": {client.SetRequest{Server: "a", RuntimeUs: 3_000, PeriodUs: 5_000}, 409, "want that of the admitted server, 10000 us"},
		"another core": {client.SetRequest{Server: "a", RuntimeUs: 3_000, Core: &one}, 409, "want core 0"},
	} {
		var refused *client.StatusError
		if err := n.Set(c.request); !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %d %s", name, err, c.code, c.want)
		}
	}
	for range 2 {
		if err := n.Set(client.SetRequest{Server: "c-a", RuntimeUs: 3_000, PeriodUs: 10_000}); err != nil {
			t.Fatal(err)
		}
	}
	if k.groups["/a"].budgetUs != 3_000 {
		t.Errorf("budget %d us; want 3000", k.groups["/a"].budgetUs)
	}
	n.apply(tableOf(2, high("a", "/a", 0)))
	if k.groups["/a"].budgetUs != 2_000 {
		t.Errorf("budget %d us; want 2000 after the next table", k.groups["/a"].budgetUs)
	}
}

func TestTheFastPathDoesNotAllocate(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	event := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	clean := n.programs.event(100, ebpf.KindClean, n.now.Load())
	if got := testing.AllocsPerRun(200, func() {
		event.Window = uint64(n.now.Add(10_000_000))
		fastpath.Handle(n.Engine, 0, &event)
		clean.Window = uint64(n.now.Add(100_000_000_000)) // also after the dwell that grows
		fastpath.Handle(n.Engine, 0, &clean)
	}); got != 0 {
		t.Errorf("%v allocations for a raise and a recovery", got)
	}
	if a := n.reported("a"); a.Raises < 100 || a.Recoveries < 100 {
		t.Errorf("%d raises, %d recoveries: the path was not taken", a.Raises, a.Recoveries)
	}
}

func TestNothingIsPutBackBeforeTheFirstTable(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.sweep()
	if k.sweeps.Load() != 0 {
		t.Error("what a process before had put in force was put back before anybody said what should be")
	}
	n.apply(tableOf(1, high("a", "/a", 0)))
	if k.sweeps.Load() == 0 || n.programs.rings[0].woken.Load() == 0 {
		t.Errorf("%d sweeps; want what nobody needs put back, and the core's thread woken", k.sweeps.Load())
	}
}

func TestAProcessThatEndsAtOnceTakesNothingAway(t *testing.T) {
	dir, k := t.TempDir(), newKernel("/a")
	first := start(t, k, dir)
	first.apply(tableOf(4, high("a", "/a", 0)))
	first.end()
	k.sweeps.Store(0)
	second := newNode(t, k, dir)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := second.Run(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := second.Apply(tableOf(6, high("a", "/a", 0))); err == nil {
		t.Error("a table was taken for applied though nothing was opened")
	}
	second.sweep()
	if k.sweeps.Load() > 0 {
		t.Error("groups that were not opened any more were put back")
	}
}

func TestAnEndThatWaitedForARaiseIsVoid(t *testing.T) {
	k := newKernel("/a")
	k.enforce = true
	n := start(t, k, t.TempDir())
	s := high("a", "/a", 0)
	s.LevelsUs = []int64{2_500, 3_000, 3_500}
	n.apply(tableOf(1, s))
	n.now.Add(12_000_000)
	end := n.programs.event(100, ebpf.KindEnd, n.now.Load())
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	for range 4 {
		n.send(0, end) // of the low budget
		end.Window += 10_000_000
		n.now.Add(10_000_000)
	}
	if a := n.reported("a"); a.LevelUs != 2_500 || a.Fault || k.groups["/a"].throttled {
		t.Errorf("%+v, throttled %v; want one level up, and running", a, k.groups["/a"].throttled)
	}
}

func TestAGroupAroundTheServerThatIsThrottledIsNoOverrun(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	for range 5 {
		n.now.Add(10_000_000)
		e := n.programs.event(100, ebpf.KindThrottled, n.now.Load())
		e.UsedNs = 100_000
		n.send(0, e)
	}
	if a := n.reported("a"); a.Fault || a.Overruns != 0 || a.BudgetUs != 2_000 {
		t.Errorf("%+v", a)
	}
}

func TestNoServerStaysStopped(t *testing.T) {
	for name, happen := range map[string]func(*node, table.Server){
		"moved":               func(n *node, s table.Server) { s.Core = 1; n.apply(tableOf(2, s)) },
		"with another period": func(n *node, s table.Server) { s.PeriodUs, s.DeadlineUs = 20_000, 20_000; n.apply(tableOf(2, s)) },
		"with another budget, when its window ends": func(n *node, s table.Server) {
			s.LowUs, s.LeastUs = 2_100, 2_100
			n.apply(tableOf(2, s))
			n.send(0, n.programs.event(100, ebpf.KindWindow, n.now.Load()))
		},
		"its next window untold": func(n *node, _ table.Server) { n.now.Add(100_000_000); n.sweep() },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel("/a")
			k.enforce = true
			n := start(t, k, t.TempDir())
			low := high("a", "/a", 0)
			low.Criticality = "Low"
			n.apply(tableOf(1, low))
			n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
			if !k.groups["/a"].throttled {
				t.Fatal("it was not stopped")
			}
			happen(n, low)
			if k.groups["/a"].throttled {
				t.Error("it has no real-time policy any more")
			}
		})
	}
}

func TestARestoreThatDiedIsFinished(t *testing.T) {
	dir, k := t.TempDir(), newKernel("/a")
	n := start(t, k, dir)
	n.apply(tableOf(1, high("a", "/a", 0)))
	k.restoreErr = actuator.ErrBusy
	if err := n.Restore(); err == nil {
		t.Fatal("it is not told that something could not be restored")
	}
	n.end()
	k.restoreErr = nil
	start(t, k, dir)
	if _, err := os.Stat(filepath.Join(dir, "table.json")); k.restored != 1 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("restored %d times, %v", k.restored, err)
	}
}

func TestAFaultThatIsOverIsNotTold(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	k.change(func() { k.groups["/a"].checkErr = actuator.ErrBusy })
	n.sweep()
	if a := n.reported("a"); a.Error == "" {
		t.Error("it is not told")
	}
	k.change(func() { k.groups["/a"].checkErr = nil })
	n.sweep()
	if a := n.reported("a"); a.Error != "" {
		t.Errorf("%q", a.Error)
	}
}

func TestCountersGoOnOverMoves(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	*n.programs.State(n.programs.slots[100]) = ebpf.State{Overruns: 5, Misses: 7, TotalNs: 1_000_000}
	for i := range 4 {
		n.apply(tableOf(int64(2+i), high("a", "/a", (i+1)%2)))
	}
	n.programs.State(n.programs.slots[100]).Misses++
	if a := n.reported("a"); a.Overruns != 5 || a.Misses != 8 || a.UsedUs != 1_000 {
		t.Errorf("%+v", a)
	}
}

func TestAReportTravels(t *testing.T) {
	n := start(t, newKernel("/a"), t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	data, err := json.Marshal(n.Report())
	if err != nil {
		t.Fatal(err)
	}
	var back table.Report
	if err := json.Unmarshal(data, &back); err != nil || back.Servers[0].ID != "a" {
		t.Errorf("%v %s", err, data)
	}
}

// A server whose group was not there waits longer and longer for it. A table that is sent meanwhile has it tried at once.
func TestATableIsTriedAtOnceWhateverFailedBefore(t *testing.T) {
	k := newKernel()
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	for range 8 {
		n.now.Add(1_000_000_000)
		n.sweep()
	}
	if a := n.reported("a"); a.Error == "" {
		t.Fatalf("%+v; want it refused: there is no group", a)
	}
	k.change(func() { k.groups["/a"] = &group{k: k, path: "/a", id: 100, core: -1} })
	n.apply(tableOf(2, high("a", "/a", 0)))
	if a := n.reported("a"); a.Error != "" || a.BudgetUs != 2_000 {
		t.Errorf("%+v; want it in force", a)
	}
}

// A kept table that cannot be read is told, put aside, and replaced by the next.
func TestAKeptTableThatIsBrokenIsTold(t *testing.T) {
	for _, text := range []string{"garbage", `{"servers":[{"id":"a","mode":"none"}]}`} {
		dir := t.TempDir()
		file := filepath.Join(dir, "table.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := start(t, newKernel("/a"), dir)
		told := func() bool { return strings.Contains(strings.Join(n.Report().Missing, "\n"), file+" cannot be used") }
		if !told() {
			t.Errorf("%s: the report says %q; want why nobody is governed", text, n.Report().Missing)
		}
		if kept, err := os.ReadFile(file + ".broken"); err != nil || string(kept) != text {
			t.Errorf("%s: put aside: %q, %v", text, kept, err)
		}
		n.apply(tableOf(1, high("a", "/a", 0)))
		if told() {
			t.Errorf("%s: still told when there is another table", text)
		}
	}
}

// A server that makes itself real-time while it is stopped is stopped again, is not taken for one that overran again, and is
// told of when it does so again and again, until it has not for a while. It is governed all the same.
func TestWhoUndoesItIsToldOf(t *testing.T) {
	n, k := stopped(t)
	again := func(times int) {
		for range times {
			k.change(func() { k.groups["/a"].throttled = false })
			n.now.Add(1000)
			n.send(0, n.programs.event(100, ebpf.KindAgain, n.now.Load()))
			if !k.groups["/a"].throttled {
				t.Fatal("it was not stopped again")
			}
		}
		n.sweep()
	}
	again(100)
	if a := n.reported("a"); a.Escapes != "" || a.Fault {
		t.Errorf("after 100 times, of which a sweep forgot one: %+v", a)
	}
	again(2)
	if a := n.reported("a"); !strings.Contains(a.Escapes, "makes itself real-time again") || a.Fault || a.Error != "" {
		t.Errorf("after 102 times: %+v", a)
	}
	again(0)
	if a := n.reported("a"); a.Escapes != "" {
		t.Errorf("another sweep later: %+v", a)
	}
}

// A reader that is late, and a budget that is changed while the server is stopped, are not the server's doing.
func TestOurOwnDelayIsNotTheServers(t *testing.T) {
	n, _ := stopped(t)
	before := n.now.Load()
	for range 500 {
		n.send(0, n.programs.event(100, ebpf.KindAgain, before))
		n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
	}
	n.sweep()
	if a := n.reported("a"); a.Escapes != "" || a.Error != "" {
		t.Errorf("%+v; want nothing", a)
	}
}

// A ring that is full loses the event that tells of the end. The next one says so, too.
func TestALostEndIsMadeGood(t *testing.T) {
	k := newKernel("/a")
	k.enforce = true
	n := start(t, k, t.TempDir())
	low := high("a", "/a", 0)
	low.Criticality = "Low"
	n.apply(tableOf(1, low))
	n.send(0, n.programs.event(100, ebpf.KindAgain, n.now.Load()))
	if !k.groups["/a"].throttled {
		t.Error("it was not stopped")
	}
	n.sweep()
	if a := n.reported("a"); a.Escapes != "" {
		t.Errorf("escapes %q; want nothing", a.Escapes)
	}
	n.send(0, n.programs.event(100, ebpf.KindWindow, n.now.Load()))
	late := n.programs.event(100, ebpf.KindAgain, n.now.Load())
	n.now.Add(20_000_000)
	n.send(0, late)
	if k.groups["/a"].throttled {
		t.Error("it was stopped for a window that is over")
	}
}

// Who has a long period is seen four times in it at most, and so must not be forgotten once a second.
func TestLongPeriodsAreForgivenSeldom(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	long := high("a", "/a", 0)
	long.PeriodUs, long.DeadlineUs = 5_000_000, 5_000_000
	n.apply(tableOf(1, long))
	forgotten := uint64(0)
	for range 10 {
		n.sweep()
		forgotten += fastpath.Forgotten(n.Engine, "a")
	}
	if forgotten != 2 {
		t.Errorf("%d forgotten in ten seconds; want two", forgotten)
	}
}

// stopped has a Low server that we have stopped for the rest of its window.
func stopped(t *testing.T) (*node, *kernel) {
	t.Helper()
	k := newKernel("/a")
	k.enforce = true
	n := start(t, k, t.TempDir())
	low := high("a", "/a", 0)
	low.Criticality = "Low"
	n.apply(tableOf(1, low))
	n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
	return n, k
}
