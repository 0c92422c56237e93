package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// threeOf are servers of three containers, each on a core of its own.
func threeOf(c containers, budget int64) (out []Server) {
	for i, group := range []string{c.first, c.second, c.guaranteed} {
		s := serverOf(group)
		s.Core, s.HighUs, s.BudgetUs = i+1, budget, budget
		out = append(out, s)
	}
	return out
}

// nearlyAll is a budget of which a machine has room for three, on a core each, and not for four.
func (l layout) nearlyAll() int64 {
	if l.name == "hcbs-multi" {
		return 8_500 // of each core
	}
	return 3_000 // of one pot
}

// expectArranged expects a controller to keep three servers that are on cores 1 to 3 by the capacities that are published, and where a core is gone, to
// bring its server to another.
func expectArranged(t *testing.T, b Backend, budget int64, cores ...int) {
	t.Helper()
	capacity := b.Capacity(cores)
	at := rt.Placement{"first": 1, "second": 2, "guaranteed": 3}
	in := rt.Node{Current: at, Witness: at}
	for _, core := range cores {
		in.Cores = append(in.Cores, rt.Core{
			ID: core, Capacity: min(rt.PPM(capacity[core]), rt.MaxCapacity), Policy: rt.PolicyOf(b.Name()), Sibling: rt.NoSibling,
		})
	}
	for id := range at {
		in.Servers = append(in.Servers, rt.Server{ID: id, Criticality: rt.High, Period: 10_000, Deadline: 10_000, Low: budget, High: budget})
	}
	if placed, _, refused := rt.Arrange(in); len(refused) > 0 {
		t.Errorf("by the capacities %v placed %v and refused %v; want none to be", capacity, placed, refused)
	}
}

// expectCapacity expects what was published before.
func expectCapacity(t *testing.T, b Backend, want map[int]int64) {
	t.Helper()
	got := b.Capacity([]int{1, 2, 3})
	for core, ppm := range want {
		if got[core] != ppm {
			t.Errorf("capacity of core %d: %d ppm; want %d", core, got[core], ppm)
		}
	}
}

// sweepOn sweeps through ten minutes.
func (s *simTree) sweepOn(b Backend) {
	s.t.Helper()
	for range 20 {
		must(s.t, second(b.Sweep()))
		s.clock += (30 * time.Second).Nanoseconds()
	}
}

// The core of a container that cannot be opened is charged for its server by the spec. It costs no capacity beside that: not after a restart, nor when
// the container is new.
func TestWhoCannotBeOpenedCostsNoCapacity(t *testing.T) {
	for _, l := range layouts[:3] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			b := s.probe(l.backend)
			free, servers := b.Capacity([]int{1, 2, 3}), threeOf(c, l.nearlyAll())
			mustOpen(t, b, servers[0])
			mustOpen(t, b, servers[1])
			s.refuse = cpusetCPUs
			if _, err := b.Open(servers[2]); err == nil {
				t.Fatal("Open succeeded; the test is wrong")
			}
			b.Spare([]string{c.guaranteed})
			s.sweepOn(b)
			expectCapacity(t, b, free)
			s.refuse = ""
			mustOpen(t, b, servers[2])
			b = s.probe(l.backend) // the next process
			for i, server := range servers {
				if server.BudgetUs = 0; i < 2 {
					mustOpen(t, b, server)
					continue
				}
				s.refuse, server.Core = cpusetCPUs, 0
				if _, err := b.Open(server); err == nil {
					t.Fatal("Open succeeded; the test is wrong")
				}
			}
			b.Spare([]string{c.guaranteed})
			s.sweepOn(b)
			expectCapacity(t, b, free)
			expectArranged(t, b, l.nearlyAll(), 1, 2, 3)
		})
	}
}

// The container of a core that is gone fits beside others by what is published, and can be opened there.
func TestWhoseCoreIsGoneFitsElsewhere(t *testing.T) {
	for _, l := range layouts[:3] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			b := s.probe(l.backend)
			servers := threeOf(c, l.nearlyAll()/2)
			for _, server := range servers {
				mustOpen(t, b, server)
			}
			b = s.probe(l.backend)
			for _, server := range servers[:2] {
				server.BudgetUs = 0
				mustOpen(t, b, server)
			}
			b.Spare([]string{c.guaranteed})
			s.sweepOn(b)
			expectArranged(t, b, l.nearlyAll()/2, 1, 2)
			servers[2].Core, servers[2].BudgetUs = 1, 0
			mustOpen(t, b, servers[2])
			b.Spare(nil)
			s.sweepOn(b)
		})
	}
}

// A level above a spared container is sized for what that has in force. What others below it had goes to the containers
// to which the spec gives it.
func TestLevelsAboveTheSparedShrink(t *testing.T) {
	for _, l := range layouts[:3] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			b := s.probe(l.backend)
			servers := threeOf(c, l.nearlyAll())
			for i := range servers {
				servers[i].Core = 1
			}
			if l.name == "hcbs-multi" {
				servers[0].HighUs, servers[1].HighUs = 3_000, 3_000
			}
			servers[1].BudgetUs = 1_000 // and 3000 when it is raised
			mustOpen(t, b, servers[1])
			b = s.probe(l.backend)
			servers[0].BudgetUs = 3_000
			g := mustOpen(t, b, servers[0])
			b.Spare([]string{c.second})
			must(t, second(b.Sweep()))
			must(t, g.Close(true))
			s.sweepOn(b)
			large := servers[2]
			large.HighUs, large.BudgetUs = 8_000, 8_000 // beside 1000
			mustOpen(t, b, large)
			s.sweepOn(b)
		})
	}
}

// What the kernel goes on to enforce for a container that is not open is known, and where it runs.
func TestWhatIsInForceIsKnown(t *testing.T) {
	for _, l := range layouts[:5] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			server := serverOf(c.first)
			server.Core = 3
			mustOpen(t, s.probe(l.backend), server)
			b := s.probe(l.backend) // the next process
			held, cores, err := b.InForce(c.first)
			must(t, err)
			switch {
			case l.backend == FIFO && held == (Budget{}):
			case l.backend != FIFO && held == (Budget{1_000, 10_000}) && slices.Equal(cores, []int{3}):
			default:
				t.Errorf("%+v on %v", held, cores)
			}
			s.die(c.first)
			if _, _, err := b.InForce(c.first); l.backend != FIFO && !errors.Is(err, ErrGone) {
				t.Errorf("of a group that has gone: %v; want ErrGone", err)
			}
		})
	}
}

// Levels above a spared container that has nothing in force, as one that began without a budget, shrink with those of others: the levels above them, which
// count what is in force, could not shrink else.
func TestLevelsAboveTheSparedWithNothingInForceGoBack(t *testing.T) {
	s := newSim(t, layouts[0].mount)
	c := populate(s)
	b := s.probe(RTGroup)
	g := mustOpen(t, b, serverOf(c.first))
	alone := s.get("cpu", "/kubepods", rtRuntime)
	other := serverOf(c.bestEffort)
	other.BudgetUs = 0
	s.refuse = cpusetCPUs
	if _, err := b.Open(other); err == nil {
		t.Fatal("Open succeeded; the test is wrong")
	}
	s.refuse = ""
	b.Spare([]string{c.bestEffort})
	s.sweepOn(b)
	if kubepods, besteffort := s.get("cpu", "/kubepods", rtRuntime), s.get("cpu", "/kubepods/besteffort", rtRuntime); kubepods != alone || besteffort != "0" {
		t.Errorf("kubepods has %s us and besteffort %s; want %s and 0", kubepods, besteffort, alone)
	}
	must(t, g.Close(true))
	s.sweepOn(b)
	mustOpen(t, b, other)
}

// Their cpusets stay as long as the container is on a core that its server gave it: the kernel would refuse them less.
func TestCpusetsAboveTheSparedWithNothingInForceStay(t *testing.T) {
	s := newSim(t, layouts[0].mount)
	c := populate(s)
	root, err := s.cg.Dir("cpuset", "/kubepods")
	must(t, err)
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == cpusetCPUs && slurp(path) != "" {
			err = os.WriteFile(path, []byte("0\n"), 0o600)
		}
		return err
	}))
	other := serverOf(c.bestEffort)
	other.BudgetUs = 0
	mustOpen(t, s.probe(RTGroup), other)
	b := s.probe(RTGroup)
	b.Spare([]string{c.bestEffort})
	s.sweepOn(b)
	if did, err := b.Sweep(); err != nil || len(did) > 0 {
		t.Errorf("%v, %v; want nothing to do", did, err)
	}
	if kubepods, own := s.get("cpuset", "/kubepods", cpusetCPUs), s.get("cpuset", c.bestEffort, cpusetCPUs); kubepods != "0-1" || own != "1" {
		t.Errorf("kubepods is on %s, the container on %s; want 0-1 and 1", kubepods, own)
	}
}
