package actuator

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A container's first threads may use its budget up before they are first looked at. What they had is on record all the same, and they have it back.
func TestWhoOverrunsBeforeTheFirstSweepHasItsOwnBack(t *testing.T) {
	s := newSim(t, layouts[3].mount)
	c := populate(s)
	clear(s.threads)
	g := mustOpen(t, s.probe(FIFO), serverOf(c.first)).(*fifoGroup) // nobody is in it yet
	tid := s.spawn(c.first, unix.SCHED_NORMAL)
	for _, step := range []struct {
		name   string
		do     func() error
		policy uint32
	}{
		{"its budget ends", g.Throttle, unix.SCHED_NORMAL},
		{"the next period", g.Replenish, unix.SCHED_NORMAL},
		{"the first sweep", func() error { _, err := g.Check(); return err }, unix.SCHED_FIFO},
		{"its budget ends again", g.Throttle, unix.SCHED_NORMAL},
		{"the period after that", g.Replenish, unix.SCHED_FIFO},
		{"the server goes", func() error { return s.probe(FIFO).Restore() }, unix.SCHED_NORMAL},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := s.threads[tid].attr.Policy; got != step.policy {
			t.Errorf("%s: it has policy %d; want %d", step.name, got, step.policy)
		}
	}
}
