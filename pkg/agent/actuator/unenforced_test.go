package actuator

import (
	"strings"
	"testing"
)

// unlimited turns off what the kernel does about budgets of real-time groups, as tuned's profile realtime does.
func (s *simTree) unlimited() { s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "-1\n") }

// An administrator who turns off the throttling of groups while we govern does not ask us. The agent offers nothing
// more, and tells it, until it is back.
func TestThrottlingThatIsTurnedOff(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			b := s.probe(l.backend)
			g := mustOpen(t, b, c.servers()[0])
			before := b.Capacity([]int{1, 2})[1]
			if err := b.Unenforced(); err != nil || before <= 0 {
				t.Fatalf("at first: %v, capacity %d", err, before)
			}
			s.unlimited()
			off, capacity := b.Unenforced(), b.Capacity([]int{1, 2})[1]
			switch l.backend {
			case RTGroup, HCBS:
				if off == nil || !strings.Contains(off.Error(), "sysctl kernel.sched_rt_runtime_us=950000") || capacity != 0 {
					t.Errorf("turned off: %v, capacity %d; want what to do, and no capacity", off, capacity)
				}
			default:
				if off != nil || capacity <= 0 {
					t.Errorf("turned off: %v, capacity %d; want nothing: its budgets end all the same", off, capacity)
				}
			}
			if drift, err := g.Check(); err != nil || len(drift) > 0 {
				t.Errorf("Check: %q, %v; want nothing: the files hold what they should", drift, err)
			}
			s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "950000\n")
			if err, again := b.Unenforced(), b.Capacity([]int{1, 2})[1]; err != nil || again != before {
				t.Errorf("back: %v, capacity %d; want %d", err, again, before)
			}
		})
	}
}

// A backend whose budgets the kernel does not end is not taken, neither anew nor because it was before.
func TestABackendThatIsTurnedOffIsNotTaken(t *testing.T) {
	for _, l := range layouts {
		if l.backend != RTGroup && l.backend != HCBS {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			s := newSim(t, l.mount)
			c := populate(s)
			mustOpen(t, s.mustStart(l.backend).Backend, serverOf(c.first))
			s.unlimited()
			if _, findings, err := s.tryProbe(l.backend); err == nil {
				t.Errorf("probed: %v", findings)
			}
			again := s.mustStart("")
			if again.Backend.Name() == l.backend || len(again.Notes) != 1 || !strings.Contains(again.Notes[0], "sched_rt_runtime_us is -1") {
				t.Errorf("a start takes %s, %q; want another, and why", again.Backend.Name(), again.Notes)
			}
		})
	}
}
