package actuator

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An init system in a container makes groups of its own. The agent does not govern what runs there, so it must tell.
func TestThreadsBelowAContainerAreCounted(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			g, err := s.probe(l.backend).Open(c.servers()[0])
			if err != nil {
				t.Fatal(err)
			}
			if n, err := g.Below(); err != nil || n != 0 {
				t.Errorf("%d threads below, %v; want none", n, err)
			}
			for _, group := range []string{"/init", "/init/service"} {
				for _, controller := range []string{"cpu", "cpuset"} {
					dir, err := s.cg.Dir(controller, c.first)
					if err != nil {
						continue
					}
					if made := filepath.Join(dir, group); !s.hasFile(made, "tasks") && !s.hasFile(made, "cgroup.threads") {
						if err := s.makeGroup(made); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			s.spawn(c.first+"/init", unix.SCHED_NORMAL)
			s.spawn(c.first+"/init/service", unix.SCHED_FIFO)
			if n, err := g.Below(); err != nil || n != 2 {
				t.Errorf("%d threads below, %v; want two", n, err)
			}
			if n, _, err := g.Threads(); err != nil || n != 2 {
				t.Errorf("%d threads of its own, %v; want two", n, err)
			}
		})
	}
}
