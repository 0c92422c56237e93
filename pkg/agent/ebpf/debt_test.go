package ebpf_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// lostBy are the events that tell of whole windows that a budget will not be there in.
func lostBy(all []ebpf.Event, budget int64) []ebpf.Event {
	var some []ebpf.Event
	for _, e := range kinds(all, ebpf.KindThrottled) {
		if e.UsedNs >= 2*uint64(budget) {
			some = append(some, e)
		}
	}
	return some
}

// A budget that shrinks under a running job leaves a debt, as time does that a hypervisor takes from the core: the
// kernel stops the group for several windows. That is told though there was an alarm in the window, and
// the windows in which the debt is paid are not clean.
func TestDebtIsTold(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	const period, small = 300 * ms, 15 * ms
	dir, id := rtGroup(t, cpuRoot, testName(), 225*time.Millisecond, 300*time.Millisecond)
	watch(t, m, 1, ebpf.Config{
		BudgetNs: uint64(225 * ms), AlarmNs: uint64(45 * ms), PeriodNs: uint64(period), CleanWindows: 3, CleanNs: uint64(12 * ms),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm | ebpf.FlagRaised, Generation: 1, Core: 1,
	}, id)
	work := []int64{140 * ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms, ms}
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: period, Work: work, Jobs: len(work), Wall: true})
	cut := false
	end := follow(t, m, func(e ebpf.Event) {
		if e.Kind == ebpf.KindAlarm && !cut {
			cut = true
			atomic.StoreUint64(&m.Config(1).BudgetNs, uint64(small))
			atomic.StoreUint64(&m.Config(1).AlarmNs, uint64(small))
			_ = os.WriteFile(filepath.Join(dir, "cpu.rt_runtime_us"), []byte("15000"), 0)
		}
	})
	p.let()
	log := p.wait()[0]
	all := end()
	lost := lostBy(all, small)
	if len(lost) != 1 {
		t.Fatalf("events %+v: want one of whole windows lost", all)
	}
	windows := int64(lost[0].UsedNs)/small - 1
	paid := int64(lost[0].Window) + (windows+1)*period
	if windows < 2 || log[0].End < paid {
		t.Errorf("%d windows were lost, the job ended at %d; want at least 2, and not before %d", windows, log[0].End, paid)
	}
	clean := slices.DeleteFunc(kinds(all, ebpf.KindClean), func(e ebpf.Event) bool { return e.Window <= lost[0].Window }) // before the job came
	if len(clean) == 0 || int64(clean[0].Window) < paid+3*period {
		t.Errorf("clean %+v: want the first three windows after the debt was paid at %d", clean, paid)
	}
}

// A job that is done before the kernel looks at its group's budget leaves a debt, too: the next one waits.
func TestDebtOfAJobThatIsDoneIsTold(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{})
	const budget = ms / 5
	dir, id := rtGroup(t, cpuRoot, testName(), 200*time.Microsecond, 20*time.Millisecond)
	watch(t, m, 1, ebpf.Config{
		BudgetNs: uint64(budget), AlarmNs: uint64(budget), PeriodNs: uint64(20 * ms), CleanWindows: 3, CleanNs: uint64(ms / 10),
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 400 * ms, Work: []int64{3 * ms / 2}, Jobs: 6, Wall: true})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()[0]
	lost := lostBy(end(), budget)
	for _, j := range log {
		n := 0
		for _, e := range lost {
			if d := int64(e.Detected); d >= j.Woken && d <= j.End+ms {
				n++
			}
		}
		if n == 0 {
			t.Errorf("job %+v: nothing was told of its debt", j)
		}
	}
}

// Two threads that share a deadline budget: who uses up its half uses up the server's.
func TestDeadlineThreadsShareTheirServersBudget(t *testing.T) {
	attached(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 3, ebpf.Config{
		BudgetNs: uint64(8 * ms), AlarmNs: uint64(4 * ms), WholeNs: uint64(8 * ms), PeriodNs: uint64(40 * ms), CleanWindows: 3, CleanNs: uint64(ms),
		Source: ebpf.SourceDeadline, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{
		Groups: []string{dir}, Policy: unix.SCHED_DEADLINE, Runtime: uint64(4 * ms), Period: 40 * ms, Threads: 2,
		Work: []int64{ms, 3 * ms, 7 * ms}, Jobs: 3,
	})
	end := follow(t, m, func(ebpf.Event) {})
	p.let()
	log := p.wait()
	all := end()
	alarms, ends := kinds(all, ebpf.KindAlarm), kinds(all, ebpf.KindEnd)
	if len(alarms) < 2 || len(ends) < 1 {
		t.Fatalf("events %+v: want an alarm in the second jobs, an alarm and an end in the third", all)
	}
	second := min(log[0][1].Release, log[1][1].Release)
	if a := int64(alarms[0].Instant); a < second+2*ms-ms/10 || a > max(log[0][1].End, log[1][1].End) {
		t.Errorf("alarm %+v: want it in one of the jobs %+v %+v, when 2 ms of it were done", alarms[0], log[0][1], log[1][1])
	}
	if e := ends[0]; e.UsedNs < uint64(8*ms) || int64(e.Instant) < log[0][2].Release+4*ms {
		t.Errorf("end %+v: want the server's budget used up in the third job", e)
	}
	if state := m.State(3).Load(); state.Overruns < 1 || state.Overruns > 3 || state.Throttles < 1 {
		t.Errorf("state %+v: want the third jobs' overrun, and the kernel's throttle seen", state)
	}
}
