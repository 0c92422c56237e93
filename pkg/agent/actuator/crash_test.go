package actuator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

type layout struct {
	name, backend string
	mount         func(*hosttest.Tree)
}

// layouts are machines, one for each way in which a backend works.
var layouts = []layout{
	{"rtgroup", RTGroup, func(tr *hosttest.Tree) { tr.CgroupsHybrid(true, "cpu,cpuacct", "cpuset") }},
	{"hcbs-rt.max", HCBS, func(tr *hosttest.Tree) {
		tr.CgroupsV2(hosttest.RTMax, "cpu", "cpuset")
		tr.Write("/sys/fs/cgroup/"+rtMax, "950000 1000000\n")
	}},
	{"hcbs-multi", HCBS, func(tr *hosttest.Tree) {
		tr.CgroupsV2(hosttest.RTMultiple, "cpu", "cpuset")
		tr.Write("/sys/fs/cgroup/"+rtMulti, "950000 950000 950000 950000\n")
		tr.Write("/sys/fs/cgroup/"+rtPeriod, "1000000\n")
		tr.Write("/sys/fs/cgroup/"+rtRuntime, "950000\n")
	}},
	{"fifo-v1", FIFO, func(tr *hosttest.Tree) { tr.CgroupsV1(false, "cpu", "cpuset") }},
	{"fifo-v2", FIFO, func(tr *hosttest.Tree) { tr.CgroupsV2(hosttest.NoRTFiles, "cpu", "cpuset") }},
	{"deadline-v1", Deadline, func(tr *hosttest.Tree) { tr.CgroupsV1(false, "cpu", "cpuset") }},
	{"deadline-v2", Deadline, func(tr *hosttest.Tree) { tr.CgroupsV2(hosttest.NoRTFiles, "cpu", "cpuset") }},
	{"cfs-v1", CFS, func(tr *hosttest.Tree) { tr.CgroupsV1(false, "cpu", "cpuset") }},
	{"cfs-v2", CFS, func(tr *hosttest.Tree) { tr.CgroupsV2(hosttest.NoRTFiles, "cpu", "cpuset") }},
}

// containers of a burstable pod with two, a guaranteed and a best-effort pod, in a machine.
type containers struct{ first, second, guaranteed, bestEffort string }

func populate(s *simTree) containers {
	k := hosttest.Kubelet{Runtime: host.Containerd}
	id := func(n int) string { return strings.Repeat(fmt.Sprint(n), 64) }
	uid := "11111111-2222-3333-4444-55555555555"
	c := containers{
		first:      s.tree.Container(k, hosttest.Burstable, uid+"1", id(1)),
		second:     s.tree.Container(k, hosttest.Burstable, uid+"1", id(2)),
		guaranteed: s.tree.Container(k, hosttest.Guaranteed, uid+"2", id(3)),
		bestEffort: s.tree.Container(k, hosttest.BestEffort, uid+"3", id(4)),
	}
	if s.cg.Has("cpu") && s.get("cpu", c.first, rtMax) != "" {
		for _, group := range s.groups() {
			s.tree.Write(strings.TrimPrefix(group, s.tree.Dir())+"/"+rtMax, "max 0\n")
		}
	}
	for _, group := range []string{c.first, c.second, c.guaranteed, c.bestEffort} {
		s.spawn(group, unix.SCHED_NORMAL)
		s.spawn(group, unix.SCHED_NORMAL)
	}
	return c
}

// groups are the directories of all groups of the cpu hierarchy but the root.
func (s *simTree) groups() []string {
	var out []string
	var walk func(dir string)
	walk = func(dir string) {
		names, _ := s.children(dir)
		for _, name := range names {
			out = append(out, dir+"/"+name)
			walk(dir + "/" + name)
		}
	}
	walk(s.root("cpu"))
	return out
}

// servers that the containers are to be at the end of a day, and the day: raises, a move, one that goes.
func (c containers) servers() []Server {
	return []Server{
		{Cgroup: c.first, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 20},
		{Cgroup: c.second, Core: 2, PeriodUs: 20_000, DeadlineUs: 20_000, BudgetUs: 1_000, HighUs: 1_000, Priority: 10},
		{Cgroup: c.guaranteed, Core: 1, PeriodUs: 50_000, DeadlineUs: 50_000, BudgetUs: 2_000, HighUs: 4_000, Priority: 5},
	}
}

func day(b Backend, c containers) error {
	gone, err := b.Open(Server{Cgroup: c.bestEffort, Core: 3, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 500, HighUs: 1_000, Priority: 1})
	if err != nil {
		return err
	}
	var groups []Group
	for _, s := range c.servers() {
		s.Core = (s.Core + 1) % 4
		g, err := b.Open(s)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	steps := []func() error{
		func() error { return groups[0].Set(2_000) },
		func() error { return groups[1].Move(2) },
		func() error { return gone.Close(true) },
		func() error { return groups[0].Move(1) },
		func() error { return groups[2].Move(1) },
		func() error { return groups[0].Set(1_000) },
		func() error { _, err := b.Sweep(); return err },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// expectIntent opens the table in a new process and compares what is in force with it.
func expectIntent(t *testing.T, s *simTree, backend string, c containers) Backend {
	t.Helper()
	b := s.probe(backend)
	for _, server := range c.servers() {
		g, err := b.Open(server)
		if err != nil {
			t.Fatalf("opening %s again: %v", server.Cgroup, err)
		}
		want := Budget{server.BudgetUs, server.PeriodUs}
		if b.ReservedOnly() {
			want.RuntimeUs = server.HighUs
		}
		budget, cores, err := g.Read()
		if err != nil || budget != want || !slices.Equal(cores, []int{server.Core}) {
			t.Errorf("%s has %v on %v (%v); want %v on %d", server.Cgroup, budget, cores, err, want, server.Core)
		}
		if drift, err := g.Check(); err != nil || len(drift) > 0 {
			t.Errorf("checking %s: %v, %v", server.Cgroup, drift, err)
		}
		if err := g.Set(server.HighUs); err != nil {
			t.Errorf("raising %s: %v", server.Cgroup, err)
		}
		if err := g.Set(server.BudgetUs); err != nil {
			t.Errorf("lowering %s: %v", server.Cgroup, err)
		}
	}
	if _, err := b.Sweep(); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	return b
}

func TestEveryDayOfEveryBackend(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			before := s.snapshot()
			if err := day(s.probe(l.backend), c); err != nil {
				t.Fatal(err)
			}
			b := expectIntent(t, s, l.backend, c)
			if s.get("cpuset", c.bestEffort, cpusetCPUs) != before[strings.TrimPrefix(s.root("cpuset"), s.tree.Dir())+c.bestEffort+"/"+cpusetCPUs] {
				t.Errorf("the container that went has CPUs %q", s.get("cpuset", c.bestEffort, cpusetCPUs))
			}
			if err := b.Restore(); err != nil {
				t.Fatalf("Restore: %v", err)
			}
			if d := differences(before, s.snapshot()); len(d) > 0 {
				t.Errorf("after Restore:\n%s", strings.Join(d, "\n"))
			}
		})
	}
}

// deathsPerLayout is at how many writes, chosen at random, the process dies on each layout in a run of `make test`. A day has 23 to 66
// writes, depending on the layout, and a container's life 9 to 23.
const deathsPerLayout = 4

// TestKilledAtEveryWrite stops the process before each of its changes in turn. What it leaves must always be
// safe; the next process makes it what the table says, and one whose table is empty puts everything back.
func TestKilledAtEveryWrite(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			whole := newSim(t, l.mount)
			c := populate(whole)
			if err := day(whole.probe(l.backend), c); err != nil {
				t.Fatal(err)
			}
			for _, k := range sampling.Points(t, 1, whole.writes, deathsPerLayout) {
				killedAt(t, l.mount, l.backend, k)
			}
		})
	}
}

func killedAt(t *testing.T, mount func(*hosttest.Tree), backend string, k int) {
	t.Helper()
	s := newSim(t, mount)
	c := populate(s)
	before := s.snapshot()
	s.killAt = k
	b, _, err := s.tryProbe(backend)
	if err == nil {
		err = day(b, c)
	}
	if !errors.Is(err, errKilled) {
		t.Fatalf("killed at %d: %v; want %v", k, err, errKilled)
	}
	s.killed, s.killAt = false, 0
	where := "the beginning"
	if len(s.log) > 0 {
		where = s.log[len(s.log)-1]
	}
	for _, group := range []string{c.first, c.second, c.guaranteed, c.bestEffort} {
		if !s.cg.InUnified("cpuset") && s.get("cpuset", group, cpusetCPUs) == "" {
			t.Errorf("killed at %d, after %s: %s is on no core", k, where, group)
		}
	}
	// One successor has the table, another an empty one.
	b = expectIntent(t, s, backend, c)
	if t.Failed() {
		t.Fatalf("killed at %d, after %s", k, where)
	}
	if err := errors.Join(b.Restore(), func() error { _, err := s.probe(backend).Sweep(); return err }()); err != nil {
		t.Fatalf("killed at %d, after %s: %v", k, where, err)
	}
	if d := differences(before, s.snapshot()); len(d) > 0 {
		t.Fatalf("killed at %d, after %s: leaked:\n%s", k, where, strings.Join(d, "\n"))
	}
}

// TestKilledAndForgotten: the successor's table is empty.
func TestKilledAndForgotten(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			whole := newSim(t, l.mount)
			c := populate(whole)
			if err := day(whole.probe(l.backend), c); err != nil {
				t.Fatal(err)
			}
			for _, k := range sampling.Points(t, 1, whole.writes, deathsPerLayout) {
				s := newSim(t, l.mount)
				c := populate(s)
				before := s.snapshot()
				s.killAt = k
				if b, _, err := s.tryProbe(l.backend); err == nil {
					_ = day(b, c)
				}
				s.killed, s.killAt = false, 0
				if _, err := s.probe(l.backend).Sweep(); err != nil {
					t.Fatalf("killed at %d: Sweep: %v", k, err)
				}
				if d := differences(before, s.snapshot()); len(d) > 0 {
					t.Fatalf("killed at %d: leaked:\n%s", k, strings.Join(d, "\n"))
				}
			}
		})
	}
}
