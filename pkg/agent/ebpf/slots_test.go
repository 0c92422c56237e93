package ebpf_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

func TestThreadsShareTheirServersBudget(t *testing.T) {
	attached(t)
	for name, source := range map[string]uint32{"own account": ebpf.SourceOwn, "RT group": ebpf.SourceRTGroup} {
		t.Run(name, func(t *testing.T) {
			m := open(t, ebpf.Options{})
			dir, id := rtGroup(t, cpuRoot, testName(), 16*time.Millisecond, 20*time.Millisecond)
			watch(t, m, 4, ebpf.Config{
				BudgetNs: uint64(9 * ms), AlarmNs: uint64(5 * ms), PeriodNs: uint64(20 * ms), CleanWindows: 3, CleanNs: uint64(ms),
				Source: source, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
			}, id)
			p := start(t, task{
				Groups: []string{dir}, Core: 1, Policy: unix.SCHED_RR, Prio: 50, Period: 20 * ms, Work: []int64{4 * ms}, Jobs: 5, Threads: 2,
			})
			end := follow(t, m, func(ebpf.Event) {})
			p.let()
			p.wait()
			all := end()
			if n := len(kinds(all, ebpf.KindAlarm)); n < 4 || n > 5 {
				t.Errorf("events %+v: want an alarm in each of 5 windows, or 4 when the machine stood still", all)
			}
			state := m.State(4).Load()
			if state.TotalNs < uint64(40*ms) || state.MaxUsedNs < uint64(8*ms) || state.Running != 0 {
				t.Errorf("state %+v: want at least 40 ms of two threads, 8 ms in a window", state)
			}
		})
	}
}

func TestThreadsOnTwoCores(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 4, ebpf.Config{
		BudgetNs: uint64(20 * ms), AlarmNs: uint64(10 * ms), PeriodNs: uint64(100 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	work := task{Groups: []string{dir}, Policy: unix.SCHED_FIFO, Prio: 50, Period: 100 * ms, Work: []int64{16 * ms}, Jobs: 1}
	other := work
	other.Core = 1
	p, q := start(t, work), start(t, other)
	p.let()
	q.let()
	p.wait()
	q.wait()
	all := events(t, m, 1, 50*time.Millisecond)
	state := m.State(4).Load()
	if len(kinds(all, ebpf.KindAlarm)) < 1 || state.Overruns < 1 || state.TotalNs < uint64(32*ms) {
		t.Errorf("state %+v, events %+v: want the use of both cores charged to one budget", state, all)
	}
}

// The programs remember of groups that come to a core what they found: also that they belong to nobody.
func TestAGroupThatIsTrackedLateIsSeen(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	dir, id := rtGroup(t, cpuRoot, testName(), 16*time.Millisecond, 20*time.Millisecond)
	work := task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{3 * ms}, Jobs: 5}
	used := func() uint64 {
		before := m.State(4).Load().TotalNs
		p := start(t, work)
		p.let()
		p.wait()
		return m.State(4).Load().TotalNs - before
	}
	config := ebpf.Config{
		BudgetNs: uint64(6 * ms), AlarmNs: uint64(4 * ms), PeriodNs: uint64(20 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}
	for range 2 {
		if n := used(); n != 0 {
			t.Errorf("%d ns of a group that is not tracked", n)
		}
		watch(t, m, 4, config, id)
		if n := used(); n < uint64(15*ms) {
			t.Errorf("%d ns of one that is; want at least 15 ms", n)
		}
		if err := m.Untrack(id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNestedGroupIsItsServers(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	outer, own := rtGroup(t, cpuRoot, testName(), 16*time.Millisecond, 20*time.Millisecond)
	inner, nested := rtGroup(t, outer, "nested", 16*time.Millisecond, 20*time.Millisecond)
	watch(t, m, 4, ebpf.Config{
		BudgetNs: uint64(6 * ms), AlarmNs: uint64(4 * ms), PeriodNs: uint64(20 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, own, nested)
	work := task{Groups: []string{inner}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{3 * ms}, Jobs: 5}
	sibling := work
	sibling.Groups = []string{outer}
	p, q := start(t, work), start(t, sibling)
	p.let()
	q.let()
	p.wait()
	q.wait()
	all := events(t, m, 1, 50*time.Millisecond)
	if state := m.State(4).Load(); state.TotalNs < uint64(30*ms) || len(kinds(all, ebpf.KindAlarm)) == 0 {
		t.Errorf("state %+v, events %+v: want both groups charged to one server", state, all)
	}
	if err := m.Untrack(nested); err != nil {
		t.Fatal(err)
	}
	before := m.State(4).Load().TotalNs
	again := start(t, work)
	again.let()
	again.wait()
	if after := m.State(4).Load().TotalNs; after != before {
		t.Errorf("%d ns charged after the nested group was let go", after-before)
	}
}

func TestGroupAboveThatEndsFirst(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	above, _ := rtGroup(t, cpuRoot, testName(), 20*time.Millisecond, 50*time.Millisecond)
	dir, id := rtGroup(t, above, "own", 40*time.Millisecond, 100*time.Millisecond)
	watch(t, m, 4, ebpf.Config{
		BudgetNs: uint64(40 * ms), AlarmNs: uint64(38 * ms), PeriodNs: uint64(100 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 100 * ms, Work: []int64{30 * ms}, Jobs: 1})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	p.wait()
	all := end()
	alarms := kinds(all, ebpf.KindAlarm)
	if len(alarms) == 0 || alarms[0].UsedNs >= uint64(21*ms) {
		t.Fatalf("events %+v: want an alarm before the group above ends", all)
	}
	if state := m.State(4).Load(); state.LevelThrottles < 1 || len(kinds(all, ebpf.KindThrottled)) < 1 {
		t.Errorf("state %+v, events %+v: want the throttle of the group above told", state, all)
	}
}

func TestFloodedRingLosesCountedEvents(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset, RingBytes: os.Getpagesize()})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 4, ebpf.Config{
		BudgetNs: uint64(2 * ms), AlarmNs: uint64(ms), PeriodNs: uint64(5 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 5 * ms, Work: []int64{3 * ms}, Jobs: 60})
	p.let()
	p.wait()
	kept := events(t, m, 1, 10*time.Millisecond)
	state := m.State(4).Load()
	// A job that a stall of the machine stretches over the end of a window may take one event for two.
	if len(kept) == 0 || m.Lost() == 0 || uint64(len(kept))+m.Lost()+4 < 2*state.Overruns || state.Overruns < 50 {
		t.Errorf("%d events kept, %d lost, %d overruns: want two events of nearly each, some lost, and every overrun counted", len(kept), m.Lost(), state.Overruns)
	}
	p = start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 5 * ms, Work: []int64{3 * ms}, Jobs: 2})
	p.let()
	p.wait()
	if len(events(t, m, 1, 10*time.Millisecond)) < 4 {
		t.Error("no events after the flood")
	}
}

func TestSlotThatChangesHands(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	config := ebpf.Config{
		BudgetNs: uint64(2 * ms), AlarmNs: uint64(ms), PeriodNs: uint64(20 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagAlarm, Core: 1,
	}
	work := task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{3 * ms}, Jobs: 3}
	for generation := uint32(1); generation <= 2; generation++ {
		config.Generation = generation
		p := start(t, work) // what its start takes is nobody's
		watch(t, m, 4, config, id)
		p.let()
		// A job that was woken late may share its window with the next, and have no overrun of its own. Before the first and after the last the program
		// itself runs, which takes as long as a budget where the machine is busy.
		sure, possible, late := uint64(0), uint64(2), false
		for _, j := range p.wait()[0] {
			if j.End-j.Woken > 2*ms+ms/2 {
				sure++
			}
			if j.End-j.Woken > 2*ms-ms/2 {
				possible++
			}
			if j.Woken-j.Release > ms/2 {
				late = true
			}
		}
		if late {
			sure = 1
		}
		for _, e := range events(t, m, 1, 10*time.Millisecond) {
			if e.Generation != generation {
				t.Errorf("event %+v in generation %d", e, generation)
			}
		}
		if state := m.State(4).Load(); state.Overruns < max(sure, 1) || state.Overruns > possible {
			t.Errorf("generation %d: state %+v; want its own overruns, %d to %d by the log of its jobs",
				generation, state, max(sure, 1), possible)
		}
	}
	*m.Config(4), *m.State(4) = ebpf.Config{}, ebpf.State{}
	p := start(t, work)
	p.let()
	p.wait()
	if state := m.State(4).Load(); state != (ebpf.State{}) {
		t.Errorf("state %+v of a slot that is not in use", state)
	}
}

func TestThreadThatRanBeforeItWasTracked(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_NORMAL, Period: 10 * ms, Work: []int64{400 * ms}, Jobs: 1})
	end := followOn(t, m, 1, func() error { return nil }, func(ebpf.Event) {})
	p.let()
	time.Sleep(30 * time.Millisecond)
	watch(t, m, 4, ebpf.Config{
		BudgetNs: uint64(9 * ms), AlarmNs: uint64(8 * ms), PeriodNs: uint64(10 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	m.Wake(1)
	p.wait()
	end()
	if state := m.State(4).Load(); state.LastSeen == 0 {
		t.Error("the thread was not seen")
	}
}

func TestJobsAgainstTheTasksOwnLog(t *testing.T) {
	attached(t)
	for name, how := range map[string]struct {
		relative, behind bool
		clock            uintptr
	}{
		"sleeps until absolute times": {}, "wake-up to block": {relative: true}, "sleeps until absolute times of its own": {behind: true},
		"by the time since boot": {clock: unix.CLOCK_BOOTTIME}, "by atomic time": {clock: unix.CLOCK_TAI},
	} {
		t.Run(name, func(t *testing.T) {
			relative := how.relative
			m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset, Jobs: true, RunQueue: true})
			dir, id := cpusetGroup(t, testName()+strconv.FormatBool(relative)+strconv.FormatBool(how.behind)+strconv.Itoa(int(how.clock)))
			watch(t, m, 6, ebpf.Config{
				BudgetNs: uint64(9 * ms), AlarmNs: uint64(9 * ms), PeriodNs: uint64(10 * ms), DeadlineNs: uint64(5 * ms),
				CleanWindows: 3, CleanNs: uint64(ms), Flags: ebpf.FlagJobs, Generation: 1, Core: 1,
			}, id)
			p := start(t, task{
				Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 60, Period: 10 * ms,
				Work: []int64{2 * ms, 2 * ms, 2 * ms, 7 * ms}, Jobs: 100, Relative: relative, Behind: how.behind, Clock: how.clock,
			})
			p.let()
			log := p.wait()[0]
			// A release that came late is the job's delay in its own log; of a thread that only says how long
			// it sleeps, the programs see the job from its late wake-up on.
			// What a thread does before its first job and after its last may be taken for a job, and be late.
			sure, possible := uint64(0), uint64(3)
			for _, j := range log {
				from := j.Release
				if relative {
					from = j.Woken
				}
				if j.End-from > 5*ms+ms/2 {
					sure++
				}
				if j.End-j.Release > 5*ms-ms/2 {
					possible++
				}
			}
			state := m.State(6).Load()
			t.Logf("by the task's log %d to %d misses; the programs saw %d of %d jobs; run queue %+v",
				sure, possible, state.Misses, state.Jobs, m.RunQueue(6))
			if relative { // a page fault in the midst of a job makes two of it
				sure -= min(sure, 3)
			}
			if state.Misses < sure || state.Misses > possible {
				t.Errorf("%d misses; the task itself saw %d to %d", state.Misses, sure, possible)
			}
			if state.Jobs < 100 || state.Jobs > 115 {
				t.Errorf("%d jobs of 100", state.Jobs)
			}
			if state.MaxResponseNs < uint64(7*ms) {
				t.Errorf("the longest response is %d ns; want at least 7 ms", state.MaxResponseNs)
			}
		})
	}
}

func TestRunQueueLatency(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset, RunQueue: true})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 6, ebpf.Config{PeriodNs: uint64(20 * ms), BudgetNs: uint64(20 * ms), AlarmNs: uint64(20 * ms), Generation: 1, Core: 1}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{4 * ms}, Jobs: 5, Threads: 2})
	p.let()
	p.wait()
	h := m.RunQueue(6)
	// Of two threads that are released together, one waits for the other's job.
	if h.MaxNs < uint64(2*ms) || h.SumNs < uint64(5*2*ms) || h.Quantile(1) < 2*time.Millisecond {
		t.Errorf("waits %+v: want at least 5 of about 4 ms", h)
	}
	m.ForgetRunQueue(6)
	if h := m.RunQueue(6); h != (ebpf.Histogram{}) {
		t.Errorf("waits %+v once they are forgotten", h)
	}
}
