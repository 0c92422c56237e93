package ebpf_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

const ms = int64(time.Millisecond)

// attached says that a test attaches programs and runs real-time tasks.
func attached(t *testing.T) {
	t.Helper()
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
}

// follow hands every event of core 1 to a function, until the returned function is called; that returns all
// of them. It does so on core 0, as the task keeps core 1.
func follow(t *testing.T, m *ebpf.Monitor, answer func(ebpf.Event)) func() []ebpf.Event {
	t.Helper()
	return followOn(t, m, 0, func() error {
		// As the agent's own readers: else other tests of the machine decide when an event is answered. What it starts is ordinary.
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
		return unix.SchedSetAttr(0, &attr, 0)
	}, answer)
}

// followOn is follow on a core, by a thread that is prepared for it.
func followOn(t *testing.T, m *ebpf.Monitor, core int, prepare func() error, answer func(ebpf.Event)) func() []ebpf.Event {
	t.Helper()
	ring, err := m.Ring(1)
	if err != nil {
		t.Fatal(err)
	}
	var all []ebpf.Event
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(core)
		_ = unix.SchedSetaffinity(0, &set)
		if err := prepare(); err != nil {
			t.Error(err)
		}
		var e ebpf.Event
		for ring.Next(&e) == nil {
			all = append(all, e)
			answer(e)
		}
	}()
	return func() []ebpf.Event {
		ring.Wake()
		<-done
		return all
	}
}

func kinds(all []ebpf.Event, kind uint32) []ebpf.Event {
	var some []ebpf.Event
	for _, e := range all {
		if e.Kind == kind {
			some = append(some, e)
		}
	}
	return some
}

// near fails unless two times differ by at most a bound.
func near(t *testing.T, what string, got, want, bound int64) {
	t.Helper()
	if d := got - want; d < -bound || d > bound {
		t.Errorf("%s is %d ns; want %d +- %d", what, got, want, bound)
	}
}

// slack is how much longer than its CPU time a span may last: by interrupts, a thread of more priority, and
// time that a hypervisor took.
const slack = 2 * ms

// worked is for how long, in nanoseconds, jobs ran within a span, by the task's own log.
func worked(log []job, from, to uint64) int64 {
	var sum int64
	for _, j := range log {
		sum += max(0, min(int64(to), j.End)-max(int64(from), j.Woken))
	}
	return sum
}

func TestOverrunOfGroupIsToldBeforeItsEnd(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	t.Logf("hook %s, notes %q", m.Hook(), m.Notes())
	dir, id := rtGroup(t, cpuRoot, testName(), 16*time.Millisecond, 20*time.Millisecond)
	watch(t, m, 7, ebpf.Config{
		BudgetNs: uint64(4 * ms), AlarmNs: uint64(2 * ms), CleanNs: uint64(ms), PeriodNs: uint64(20 * ms), CleanWindows: 3,
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 5, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{6 * ms}, Jobs: 10})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()[0]
	all := end()
	alarms, ends := kinds(all, ebpf.KindAlarm), kinds(all, ebpf.KindEnd)
	// Two jobs may share a window when the machine itself stood still.
	if len(alarms) < len(log)-2 || len(alarms) > len(log) || len(ends) != len(alarms) || len(all) != 2*len(alarms) {
		t.Fatalf("%d alarms, %d ends, %d events of %d jobs", len(alarms), len(ends), len(all), len(log))
	}
	for i := range alarms {
		a, e := alarms[i], ends[i]
		if a.Slot != 7 || a.Generation != 5 || a.CPU != 1 || a.Window != e.Window || a.Detected >= e.Detected {
			t.Errorf("alarm %+v, end %+v: want both of slot 7, generation 5, one window, the alarm first", a, e)
		}
		near(t, "from alarm to end", int64(e.Instant-a.Instant), 2*ms, slack)
		// The kernel's window begins anywhere in a job where the machine stood still as the group's timer was started.
		untilAlarm, untilEnd := worked(log, a.Window, a.Instant), worked(log, e.Window, e.Instant)
		if untilAlarm < 2*ms-ms/2 || untilAlarm > 2*ms+slack || untilEnd < 4*ms-ms/2 || untilEnd > 4*ms+2*slack || a.Instant > a.Detected {
			t.Errorf("alarm %+v after %d ns of work in its window, end %+v after %d ns: want 2 ms and 4 ms of the jobs %+v", a, untilAlarm, e, untilEnd, log)
		}
	}
	state := m.State(7).Load()
	if state.Overruns != uint64(len(ends)) || state.TotalNs < 60*uint64(ms) || state.MaxUsedNs < 6*uint64(ms) || state.Running != 0 {
		t.Errorf("state %+v: want %d overruns, at least 60 ms in all and 6 ms in a window, nothing running", state, len(ends))
	}
	if m.Lost() != 0 {
		t.Errorf("%d events lost", m.Lost())
	}
}

func TestRaisedBudgetIsWatchedAnew(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	dir, id := rtGroup(t, cpuRoot, testName(), 400*time.Millisecond, 500*time.Millisecond)
	watch(t, m, 1, ebpf.Config{
		BudgetNs: uint64(20 * ms), AlarmNs: uint64(2 * ms), PeriodNs: uint64(500 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 500 * ms, Work: []int64{30 * ms}, Jobs: 1})
	raised := false
	end := follow(t, m, func(e ebpf.Event) {
		if e.Kind == ebpf.KindAlarm && !raised {
			raised = true
			atomic.StoreUint64(&m.Config(1).BudgetNs, uint64(50*ms))
			atomic.StoreUint64(&m.Config(1).AlarmNs, uint64(25*ms))
			atomic.AddUint32(&m.Config(1).Rearm, 1)
		}
	})
	p.let()
	p.wait()
	all := end()
	if len(all) != 2 || all[0].Kind != ebpf.KindAlarm || all[1].Kind != ebpf.KindAlarm || all[0].Window != all[1].Window {
		t.Fatalf("events %+v: want two alarms in one window and no end", all)
	}
	near(t, "from the first alarm to that of the raised budget", int64(all[1].Instant-all[0].Instant), 23*ms, slack)
	if state := m.State(1).Load(); state.Overruns != 0 {
		t.Errorf("state %+v: want no overrun", state)
	}
}

func TestCleanWindowsAreTold(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	dir, id := rtGroup(t, cpuRoot, testName(), 16*time.Millisecond, 20*time.Millisecond)
	watch(t, m, 1, ebpf.Config{
		BudgetNs: uint64(12 * ms), AlarmNs: uint64(10 * ms), PeriodNs: uint64(20 * ms), CleanWindows: 8, CleanNs: uint64(4 * ms),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm | ebpf.FlagRaised, Generation: 1, Core: 1,
	}, id)
	work := []int64{ms, ms, 7 * ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms}
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: work, Jobs: len(work)})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()[0]
	all := end()
	if len(all) < 2 || len(kinds(all, ebpf.KindClean)) != len(all) {
		t.Fatalf("events %+v: want that of clean windows at least twice, and nothing else", all)
	}
	dirty := log[2].Release
	for _, e := range all {
		// Not while fewer than eight clean windows lie between the long job's and this one.
		if behind := int64(e.Window) - dirty; behind >= 0 && behind < 8*20*ms {
			t.Errorf("told %d ms after the long job", behind/ms)
		}
	}
	if state := m.State(1).Load(); state.Overruns != 0 || state.Clean < 10 {
		t.Errorf("state %+v: want no overrun and the last 10 windows clean", state)
	}
}

func TestEnforcedBudgetOfOwnAccount(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 2, ebpf.Config{
		BudgetNs: uint64(3 * ms), AlarmNs: uint64(2 * ms), PeriodNs: uint64(20 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagEnforce, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{ms, 6 * ms}, Jobs: 10})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()[0]
	time.Sleep(30 * time.Millisecond) // the last window has to end
	all := end()
	ends, windows := kinds(all, ebpf.KindEnd), kinds(all, ebpf.KindWindow)
	// Nobody stops it: that is told, four times in a window.
	again := kinds(all, ebpf.KindAgain)
	if len(again) < 3*len(ends) || len(again) > 4*len(ends) {
		t.Errorf("%d times told that it runs on after %d ends; want four times each, or three of some", len(again), len(ends))
	}
	// A window begins with the job that is found in no other. After one that was woken late, the next job lies in two.
	late := 0
	for _, j := range log {
		if j.Woken-j.Release > ms/5 || j.End-j.Woken > 6*ms+ms/5 {
			late++
		}
	}
	if len(ends) < 5-late || len(ends) > 5+late || len(windows) != len(ends) || len(all) != len(again)+2*len(ends) {
		t.Fatalf("%d ends, %d windows of %d events; want 5 and 5, or up to %d more or fewer: %+v; the jobs' own log %+v", len(ends), len(windows), len(all), late, all, log)
	}
	for i := range ends {
		if windows[i].Window != ends[i].Window+uint64(20*ms) || windows[i].Detected < windows[i].Instant {
			t.Errorf("end %+v, window %+v: want the next window at its start", ends[i], windows[i])
		}
		near(t, "used at the end, but for what was seen late", int64(ends[i].UsedNs-(ends[i].Detected-ends[i].Instant)), 3*ms, ms/2)
	}
	if state, n := m.State(2).Load(), uint64(len(ends)); state.Throttles != n || state.Overruns != n {
		t.Errorf("state %+v: want %d throttles and overruns, as many as ends", state, n)
	}
}

// A budget that is squeezed while its server is stopped is told of once more; the server is stopped once all the same.
func TestBudgetThatChangesAfterItsEnd(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 2, ebpf.Config{
		BudgetNs: uint64(3 * ms), AlarmNs: uint64(3 * ms), PeriodNs: uint64(200 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagEnforce, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 400 * ms, Work: []int64{120 * ms}, Jobs: 1})
	cut := false
	end := follow(t, m, func(e ebpf.Event) {
		if e.Kind == ebpf.KindEnd && !cut {
			cut = true
			atomic.StoreUint64(&m.Config(2).BudgetNs, uint64(2*ms))
		}
	})
	p.let()
	p.wait()
	time.Sleep(150 * time.Millisecond) // the window has to end
	if ends := kinds(end(), ebpf.KindEnd); len(ends) != 2 || ends[0].Window != ends[1].Window {
		t.Errorf("ends %+v; want two in one window", ends)
	}
	if state := m.State(2).Load(); state.Throttles != 1 || state.Overruns != 1 {
		t.Errorf("state %+v; want one throttle and one overrun", state)
	}
}

func TestWorkThatRunsThroughWindows(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 2, ebpf.Config{
		BudgetNs: uint64(4 * ms), AlarmNs: uint64(2 * ms), PeriodNs: uint64(10 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 10 * ms, Work: []int64{95 * ms}, Jobs: 1})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()[0]
	all := end()
	alarms, ends := kinds(all, ebpf.KindAlarm), kinds(all, ebpf.KindEnd)
	want := int((log[0].End - log[0].Release) / (10 * ms)) // whole windows, each told of once
	if len(alarms) < want || len(alarms) > want+1 || len(ends) < want || len(ends) > want+1 {
		t.Fatalf("%d alarms and %d ends in %d windows", len(alarms), len(ends), want)
	}
	for i := 1; i < len(alarms); i++ {
		near(t, "from alarm to alarm", int64(alarms[i].Instant-alarms[i-1].Instant), 10*ms, slack)
		near(t, "from window to window", int64(alarms[i].Window-alarms[i-1].Window), 10*ms, 0)
	}
}

func TestDeadlineTask(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 3, ebpf.Config{
		BudgetNs: uint64(8 * ms), AlarmNs: uint64(4 * ms), PeriodNs: uint64(40 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Source: ebpf.SourceDeadline, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{
		Groups: []string{dir}, Policy: unix.SCHED_DEADLINE, Runtime: uint64(8 * ms), Period: 40 * ms,
		Work: []int64{2 * ms, 6 * ms, 14 * ms}, Jobs: 3,
	})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()[0]
	all := end()
	if len(all) < 3 || all[0].Kind != ebpf.KindAlarm || all[1].Kind != ebpf.KindAlarm || all[2].Kind != ebpf.KindEnd {
		t.Fatalf("events %+v: want an alarm in the second job, an alarm and an end in the third", all)
	}
	if a := int64(all[0].Instant); a < log[1].Release+4*ms || a > log[1].End {
		t.Errorf("alarm %+v: want it in job %+v", all[0], log[1])
	}
	near(t, "from alarm to end", int64(all[2].Instant-all[1].Instant), 4*ms, slack)
	if state := m.State(3).Load(); state.Overruns != 1 || state.Throttles < 1 {
		t.Errorf("state %+v: want an overrun, and the kernel's throttle seen", state)
	}
}
