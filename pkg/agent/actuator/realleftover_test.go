package actuator

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// runIn has a FIFO thread that never yields run in a group that is open as a server, and returns what it got.
func runIn(t *testing.T, group string, watch time.Duration) time.Duration {
	t.Helper()
	pid := hog(t)
	write(t, "cpuset", group, "cgroup.procs", pid)
	write(t, "cpu", group, "cgroup.procs", pid)
	if err := (linux{}).setAttr(pid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}); err != nil {
		t.Fatal(err)
	}
	before, _, err := linux{host.New("/")}.progress(pid)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(watch)
	after, _, err := linux{host.New("/")}.progress(pid)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(after - before)
}

// TestWhoComesAfterAHeavierOne: the kernel still charges a level with what a heavier container used of it before all its
// budgets were put back. The next container gets its own all the same.
func TestWhoComesAfterAHeavierOneOnThisKernel(t *testing.T) {
	b, top := realMachine(t, RTGroup)
	level := top + "/pods"
	makeReal(t, level)
	for _, c := range []struct {
		name     string
		budgetUs int64
		want     time.Duration // in two seconds
	}{{"heavy", 80_000, 1300 * time.Millisecond}, {"light", 2_000, 36 * time.Millisecond}} {
		group := level + "/" + c.name
		makeReal(t, group)
		g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 100_000, DeadlineUs: 100_000, BudgetUs: c.budgetUs, HighUs: c.budgetUs})
		if err != nil {
			t.Fatal(err)
		}
		if got := runIn(t, group, 2*time.Second); got < c.want {
			t.Errorf("%s got %v of the core in 2 s, want %v", c.name, got, c.want)
		}
		if err := g.Close(true); err != nil {
			t.Fatal(err)
		}
		if got := readReal(t, "cpu", level, rtRuntime); got != "0" {
			t.Errorf("after %s the level has %s us, want 0", c.name, got)
		}
	}
}
