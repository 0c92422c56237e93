package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// rtSim is a machine with real-time groups, its containers, and a backend.
func rtSim(t *testing.T) (*simTree, containers, Backend) {
	t.Helper()
	s := newSim(t, layouts[0].mount)
	c := populate(s)
	return s, c, s.probe(RTGroup)
}

func serverOf(group string) Server {
	return Server{Cgroup: group, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 20}
}

func mustOpen(t *testing.T, b Backend, s Server) Group {
	t.Helper()
	g, err := b.Open(s)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return g
}

// remake removes a group and makes one by the same name.
func (s *simTree) remake(group string) {
	s.t.Helper()
	for _, c := range []string{"cpu", "cpuset"} {
		dir, err := s.cg.Dir(c, group)
		if err != nil {
			s.t.Fatal(err)
		}
		aside := dir + "-aside" // keeps its inode from being given out again at once
		if err := os.Rename(dir, aside); err != nil {
			s.t.Fatal(err)
		}
		if err := s.makeGroup(dir); err != nil {
			s.t.Fatal(err)
		}
		if err := os.RemoveAll(aside); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *simTree) remove(group string) {
	s.t.Helper()
	for _, c := range []string{"cpu", "cpuset"} {
		if dir, err := s.cg.Dir(c, group); err == nil {
			if err := s.removeGroup(dir); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func TestContainerThatDies(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	s.remove(c.first)
	if err := g.Set(2_000); !errors.Is(err, ErrGone) {
		t.Errorf("Set: %v; want ErrGone", err)
	}
	if _, err := g.Check(); !errors.Is(err, ErrGone) {
		t.Errorf("Check: %v; want ErrGone", err)
	}
	if err := g.Move(2); !errors.Is(err, ErrGone) {
		t.Errorf("Move: %v; want ErrGone", err)
	}
	if err := g.Close(false); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := g.Set(1_000); !errors.Is(err, ErrGone) {
		t.Errorf("Set after Close: %v; want ErrGone", err)
	}
	if _, err := b.Sweep(); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "0" {
		t.Errorf("kubepods keeps %s us; want 0", got)
	}
	if _, err := b.Open(serverOf(c.first)); !errors.Is(err, ErrGone) {
		t.Errorf("Open: %v; want ErrGone", err)
	}
}

func TestGroupMadeAnewIsRefused(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	s.remake(c.first)
	if _, err := g.Check(); !errors.Is(err, ErrGone) {
		t.Errorf("Check: %v; want ErrGone", err)
	}
	if _, _, err := g.Read(); !errors.Is(err, ErrGone) {
		t.Errorf("Read: %v; want ErrGone", err)
	}
	if err := g.Close(true); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := s.get("cpu", c.first, rtPeriod); got != "1000000" {
		t.Errorf("the new group's period is %s; want it untouched", got)
	}
	mustOpen(t, b, serverOf(c.first))
}

func TestRenamedGroupIsRefused(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	dir, err := s.cg.Dir("cpu", c.first)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-renamed"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Check(); !errors.Is(err, ErrGone) {
		t.Errorf("Check: %v; want ErrGone", err)
	}
	if err := os.Symlink(dir+"-renamed", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(serverOf(c.first)); err == nil || errors.Is(err, ErrGone) && !strings.Contains(err.Error(), "directory") {
		t.Errorf("Open through a symbolic link: %v; want a refusal", err)
	}
}

func TestDriftIsPutRight(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	overwrite := func(controller, group, file, value string) {
		t.Helper()
		dir, err := s.cg.Dir(controller, group)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	overwrite("cpu", c.first, rtRuntime, "500")
	overwrite("cpuset", c.first, cpusetCPUs, "0-3")
	drift, err := g.Check()
	if err != nil || len(drift) != 2 {
		t.Fatalf("Check: %q, %v; want two differences", drift, err)
	}
	if budget, cores, err := g.Read(); err != nil || budget != (Budget{1_000, 10_000}) || !slices.Equal(cores, []int{1}) {
		t.Errorf("after Check: %v on %v, %v", budget, cores, err)
	}
	// A level that an administrator made smaller is large enough again within settleEvery.
	overwrite("cpu", c.first, rtRuntime, "0")
	for _, level := range slices.Backward(above(c.first)) {
		overwrite("cpu", level, rtRuntime, "0")
	}
	if drift, err = g.Check(); err != nil || len(drift) != 1 {
		t.Fatalf("Check: %q, %v; want one difference", drift, err)
	}
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "12012000" {
		t.Errorf("kubepods has %s us; want 12012000", got)
	}
}

// TestContestedGroup: something that changes a group again and again is reported, and not fought for ever.
func TestContestedGroup(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	for i := 1; i <= contestedEvery; i++ {
		s.tree.Write("/sys/fs/cgroup/cpu,cpuacct"+c.first+"/"+rtRuntime, "500\n")
		drift, err := g.Check()
		want := i > contested && i < contestedEvery
		if len(drift) != 1 || errors.Is(err, ErrContested) != want {
			t.Fatalf("check %d: %q, %v; want ErrContested %v", i, drift, err, want)
		}
	}
	if drift, err := g.Check(); err != nil || len(drift) > 0 {
		t.Errorf("Check once it is left alone: %q, %v", drift, err)
	}
}

// TestBandwidthOfRemovedGroups comes back a while after they went.
func TestBandwidthOfRemovedGroups(t *testing.T) {
	s, c, b := rtSim(t)
	s.tree.Group("/foreign")
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct/foreign/"+rtRuntime, "800000\n")
	big := serverOf(c.first)
	big.HighUs = 5_000
	if _, err := b.Open(big); err == nil {
		t.Log("opened with less than it may be raised to")
	}
	s.remove("/foreign")
	if _, err := s.probe(RTGroup).Open(big); err != nil {
		t.Fatalf("Open while the bandwidth of a removed group comes back: %v", err)
	}
}

func TestPotWithoutRoom(t *testing.T) {
	s, c, b := rtSim(t)
	s.tree.Group("/foreign")
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct/foreign/"+rtRuntime, "750000\n")
	if got := b.Capacity([]int{0, 1, 2, 3}); got[0] != (950_000-750_000-roundingPpm)/4 {
		t.Errorf("capacity %v; want the rest of the pot, shared out", got)
	}
	large := serverOf(c.first)
	large.BudgetUs, large.HighUs = 1_000, 9_000
	g := mustOpen(t, b, large)
	if err := g.Set(9_000); !errors.Is(err, ErrNoRoom) {
		t.Errorf("Set to what there is no room for: %v; want ErrNoRoom", err)
	}
	if err := g.Set(1_900); err != nil {
		t.Errorf("Set to what there is room for: %v", err)
	}
	second := serverOf(c.guaranteed)
	if _, err := b.Open(second); !errors.Is(err, ErrNoRoom) {
		t.Errorf("Open of one more: %v; want ErrNoRoom", err)
	}
	// Room that comes later is claimed by the next sweep.
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct/foreign/"+rtRuntime, "0\n")
	if _, err := g.Check(); err != nil {
		t.Fatal(err)
	}
	if err := g.Set(9_000); err != nil {
		t.Errorf("Set once there is room: %v", err)
	}
}

// TestFailedOpenLeavesOthersAlone: after a restart the table reaches groups one by one, and one that fails
// must not have the others put back.
func TestFailedOpenLeavesOthersAlone(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			s := newSim(t, l.mount)
			c := populate(s)
			if err := day(s.probe(l.backend), c); err != nil {
				t.Fatal(err)
			}
			before := s.snapshot()
			b := s.probe(l.backend)
			dead := serverOf("/kubepods/podgone/container")
			if _, err := b.Open(dead); !errors.Is(err, ErrGone) {
				t.Fatalf("Open: %v; want ErrGone", err)
			}
			g := mustOpen(t, b, serverOf(c.bestEffort))
			if err := g.Close(true); err != nil {
				t.Fatal(err)
			}
			// Only what kubepods holds may have grown, until the next Sweep.
			d := slices.DeleteFunc(differences(before, s.snapshot()), func(line string) bool {
				return strings.Contains(line, "kubepods/cpu.rt_")
			})
			if len(d) > 0 {
				t.Errorf("changed:\n%s", strings.Join(d, "\n"))
			}
		})
	}
}

// TestLevelsShrinkTwoWindowsLater: what a container used in the window under way is charged to its pod.
func TestLevelsShrinkTwoWindowsLater(t *testing.T) {
	s, c, b := rtSim(t)
	mustOpen(t, b, serverOf(c.first))
	g := mustOpen(t, b, serverOf(c.second))
	pod := above(c.first)[2]
	if got := s.get("cpu", pod, rtRuntime); got != "24024000" {
		t.Fatalf("the pod has %s us for two containers; want 24024000", got)
	}
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		afterNs int64
		want    string
	}{{0, "24024000"}, {settleAfter.Nanoseconds() - 1, "24024000"}, {2, "12012000"}} {
		s.clock += step.afterNs
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := s.get("cpu", pod, rtRuntime); got != step.want {
			t.Errorf("at %d ns the pod has %s us; want %s", s.clock, got, step.want)
		}
	}
}

// TestBudgetOfTheAdministrator: a level that had a budget keeps at least that, and its period.
func TestBudgetOfTheAdministrator(t *testing.T) {
	s, c, _ := rtSim(t)
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct/kubepods/"+rtRuntime, "900000\n")
	before := s.snapshot()
	b := s.probe(RTGroup)
	mustOpen(t, b, serverOf(c.first))
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "900000" {
		t.Errorf("kubepods has %s us; want 900000", got)
	}
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
	if d := differences(before, s.snapshot()); len(d) > 0 {
		t.Errorf("after Restore:\n%s", strings.Join(d, "\n"))
	}
}

// TestRealtimeThreadsAtRestore: the kernel refuses to take the last budget from real-time threads.
func TestRealtimeThreadsAtRestore(t *testing.T) {
	s, c, b := rtSim(t)
	mustOpen(t, b, serverOf(c.first))
	tid := s.spawn(c.first, unix.SCHED_FIFO)
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
	if got := s.threads[tid].attr.Policy; got != unix.SCHED_NORMAL {
		t.Errorf("thread has policy %d after Restore; want 0", got)
	}
}
