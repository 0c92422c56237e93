package ebpf_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// Some kernels call no program when a thread of some process leaves its core. Who comes after it must be seen all the same, and while
// it runs: a core of nothing but such a process and a server is the worst case.
func TestServerAfterAHiddenProcess(t *testing.T) {
	attached(t)
	const jobs = 20
	hidden := start(t, task{Groups: []string{cpuRoot}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 1, Period: 10 * ms, Work: []int64{600 * ms}, Jobs: 1, Wall: true})
	m := open(t, ebpf.Hiding(ebpf.Options{Jobs: true}, hidden.cmd.Process.Pid))
	dir, id := rtGroup(t, cpuRoot, testName(), 16*time.Millisecond, 20*time.Millisecond)
	watch(t, m, 7, ebpf.Config{
		BudgetNs: uint64(3 * ms), AlarmNs: uint64(2 * ms), CleanNs: uint64(ms), PeriodNs: uint64(20 * ms), DeadlineNs: uint64(20 * ms),
		CleanWindows: 3, Flags: ebpf.FlagAlarm | ebpf.FlagEnforce | ebpf.FlagJobs, Generation: 1, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{6 * ms}, Jobs: jobs, Relative: true})
	end := follow(t, m, func(ebpf.Event) {})
	hidden.let()
	p.let()
	log := p.wait()[0]
	all := end()
	hidden.stop()
	if unseen := m.Unseen(); unseen < jobs-4 {
		t.Errorf("%d threads came unseen; want one for nearly each of %d jobs", unseen, jobs)
	}
	for _, kind := range []uint32{ebpf.KindAlarm, ebpf.KindEnd} {
		if n := toldDuring(log, kinds(all, kind)); n < jobs-4 {
			t.Errorf("kind %d was told while %d of %d jobs ran: %+v", kind, n, jobs, all)
		}
	}
	if state := m.State(7).Load(); state.TotalNs < uint64((jobs-2)*6*ms) || state.Jobs < jobs-4 {
		t.Errorf("state %+v: want the time of all jobs, and nearly each counted", state)
	}
}

// toldDuring counts the jobs during which one of the events was detected.
func toldDuring(log []job, events []ebpf.Event) int {
	n := 0
	for _, j := range log {
		for _, e := range events {
			if int64(e.Detected) > j.Release && int64(e.Detected) < j.End {
				n++
				break
			}
		}
	}
	return n
}
