package actuator

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnotherBackendPutsBack what one did, whichever it is: its files, the threads that it changed, and those made since.
func TestAnotherBackendPutsBack(t *testing.T) {
	for _, l := range layouts {
		for _, by := range append(names(), Blocked) {
			t.Run(l.name+" by "+by, func(t *testing.T) {
				t.Parallel()
				s := newSim(t, l.mount)
				c := populate(s)
				own := s.spawn(c.first, unix.SCHED_NORMAL)
				before := s.snapshot()
				if err := day(s.probe(l.backend), c); err != nil {
					t.Fatal(err)
				}
				if needsBudget := l.name == "rtgroup" || l.name == "hcbs-multi"; needsBudget || l.backend == FIFO {
					s.threads[own].attr = unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 50} // as an application does
					s.breed(c.first, 1, c.servers()[0].Priority)
					before["thread "+itoa(int64(s.newThread))] = "0 0"
				}
				b, ok := s.other(by)
				if !ok {
					return // not on this machine
				}
				if _, err := b.Sweep(); err != nil {
					t.Errorf("Sweep: %v", err)
				}
				if err := b.Restore(); err != nil {
					t.Errorf("Restore: %v", err)
				}
				if d := differences(before, s.snapshot()); len(d) > 0 {
					t.Errorf("left:\n%s", strings.Join(d, "\n"))
				}
			})
		}
	}
}

// other opens a backend, untried, in place of the one before.
func (s *simTree) other(name string) (Backend, bool) {
	s.t.Helper()
	m, err := newMachine(ProbeOptions{Host: s.host, StateDir: s.state, Cores: []int{0, 1, 2, 3}, Now: func() int64 { return s.clock }, kernel: s.simKernel})
	if err != nil {
		s.t.Fatal(err)
	}
	if name == Blocked {
		return newBlocked(m, nil), true
	}
	for _, c := range candidates() {
		if c.name == name {
			b, _, err := c.build(m)
			return b, err == nil
		}
	}
	return nil, false
}
