package ebpf_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	cilium "github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// BenchmarkSwitch has two threads of a server wake each other on one core, and reports what the programs cost:
// nanoseconds for each context switch, as the kernel measures them (which adds some 25 ns to each run).
func BenchmarkSwitch(b *testing.B) {
	privileged.Require(b, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(b)
	for _, c := range []struct {
		name    string
		source  uint32
		tracked bool
		options ebpf.Options
	}{
		{"untracked", ebpf.SourceOwn, false, ebpf.Options{}},
		{"own-account", ebpf.SourceOwn, true, ebpf.Options{}},
		{"rt-group", ebpf.SourceRTGroup, true, ebpf.Options{}},
		{"rt-group-jobs", ebpf.SourceRTGroup, true, ebpf.Options{Jobs: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			stats, err := cilium.EnableStats(unix.BPF_STATS_RUN_TIME)
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			c.options.Cores = []int{0, 1}
			m, err := ebpf.Open(c.options)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			pod, _ := rtGroup(b, cpuRoot, testName(), 600*time.Millisecond, time.Second)
			dir, id := rtGroup(b, pod, "container", 600*time.Millisecond, time.Second)
			if c.tracked {
				watch(b, m, 1, ebpf.Config{
					BudgetNs: uint64(600 * ms), AlarmNs: uint64(500 * ms), PeriodNs: uint64(1000 * ms), DeadlineNs: uint64(1000 * ms),
					CleanNs: uint64(ms), CleanWindows: 3, Source: c.source, Flags: ebpf.FlagAlarm | ebpf.FlagJobs, Generation: 1, Core: 1,
				}, id)
			}
			before, runs, err := m.Cost()
			if err != nil {
				b.Fatal(err)
			}
			pingPong(b, dir, b.N)
			after, ran, err := m.Cost()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after-before)/float64(ran-runs), "bpf-ns/switch")
		})
	}
}

// BenchmarkPeriodic runs a task of 1,000 jobs a second: once in each the timer is armed, which a virtual
// machine pays for with an exit.
func BenchmarkPeriodic(b *testing.B) {
	privileged.Require(b, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(b)
	stats, err := cilium.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	m, err := ebpf.Open(ebpf.Options{Cores: []int{0, 1}, Jobs: true})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	dir, id := rtGroup(b, cpuRoot, testName(), 600*time.Microsecond, time.Millisecond)
	watch(b, m, 1, ebpf.Config{
		BudgetNs: uint64(ms / 2), AlarmNs: uint64(ms / 2), PeriodNs: uint64(ms), DeadlineNs: uint64(ms), CleanNs: uint64(ms),
		CleanWindows: 3, Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm | ebpf.FlagJobs, Generation: 1, Core: 1,
	}, id)
	before, runs, err := m.Cost()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its policy and group
		t := task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 20, Period: ms, Work: []int64{ms / 10}, Jobs: b.N}
		err := t.join()
		if err == nil {
			t.run(clock(unix.CLOCK_MONOTONIC))
		}
		done <- errors.Join(err, leave(cpuRoot))
	}()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	after, ran, err := m.Cost()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(after-before)/float64(ran-runs), "bpf-ns/switch")
	b.ReportMetric(float64(ran-runs)/float64(b.N), "switches/job")
}

// pingPong has two threads in a group wake each other n times on core 1.
func pingPong(b *testing.B, dir string, n int) {
	var there, back [2]int
	if err := unix.Pipe(there[:]); err != nil {
		b.Fatal(err)
	}
	if err := unix.Pipe(back[:]); err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 2)
	play := func(first bool, from, to int) {
		runtime.LockOSThread() // and never unlocked: the thread ends with its policy and group
		err := task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 20}.join()
		var ball [1]byte
		for i := 0; i < n && err == nil; i++ {
			if !first || i > 0 {
				_, err = unix.Read(from, ball[:])
			}
			if err == nil {
				_, err = unix.Write(to, ball[:])
			}
		}
		_ = unix.Close(to)
		done <- errors.Join(err, leave(cpuRoot))
	}
	go play(true, back[0], there[1])
	go play(false, there[0], back[1])
	for range 2 {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	_ = unix.Close(there[0])
	_ = unix.Close(back[0])
}
