package actuator

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadOnlyGroups: where nothing can be written no backend is taken, and each says what it lacks.
func TestReadOnlyGroups(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			s := newSim(t, l.mount)
			populate(s)
			s.readOnly = true
			b, findings, err := s.tryProbe("")
			if err != nil || b.Name() != Blocked {
				t.Fatalf("Probe: %v, %v, %v; want %s", b, findings, err, Blocked)
			}
			const fix = "give write access to the cgroup hierarchies"
			for _, f := range findings {
				works := f.Backend == l.backend || f.Backend == FIFO || f.Backend == Deadline || f.Backend == CFS
				if works && (f.Fix != fix || !strings.Contains(f.Reason, unix.EROFS.Error())) {
					t.Errorf("%s; want that the groups are read-only, and %q", f, fix)
				}
			}
		})
	}
}
