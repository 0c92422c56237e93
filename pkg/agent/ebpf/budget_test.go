package ebpf_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

const ms = int64(time.Millisecond)

func TestGroupThatOverrunsIsToldOf(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
	m := open(t, ebpf.Options{})
	t.Log(m.Hook(), m.Notes())
	dir, id := rtGroup(t, cpuRoot, testName(), 6*time.Millisecond, 20*time.Millisecond)
	watch(t, m, 7, ebpf.Config{
		BudgetNs: uint64(2 * ms), AlarmNs: uint64(3 * ms / 2), CleanNs: uint64(1 * ms), PeriodNs: uint64(20 * ms), CleanWindows: 3,
		Source: ebpf.SourceRTGroup, Flags: ebpf.FlagAlarm, Generation: 5, Core: 1,
	}, id)
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{3 * ms}, Jobs: 10})
	p.let()
	for _, e := range events(t, m, 1, 300*time.Millisecond) {
		t.Logf("%+v late %d", e, int64(e.Detected-e.Instant))
	}
	t.Logf("%+v", m.State(7).Load())
	t.Log(p.wait())
}
