package actuator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

// lucky is what the self-test of these tests samples: less than a tick.
const lucky = 1_804

// start chooses as a new process would.
func (s *simTree) start(want string) (Choice, error) {
	s.t.Helper()
	return Start(s.t.Context(), ProbeOptions{
		Host: s.host, Want: want, StateDir: s.state, Cores: []int{0, 1, 2, 3}, Now: func() int64 { return s.clock }, kernel: s.simKernel,
		measure: func(_ context.Context, b Backend, _ int) (int64, error) {
			bw, ok := b.(*budgeted)
			if !ok {
				return 60, nil
			}
			// A thread in a scratch group, less what it runs.
			return lucky, bw.tryOut([]string{"cpu"}, func(group string) error {
				return bw.lend(group, 1, Budget{testRuntimeUs, testPeriodUs}, func(files) error { return nil })
			})
		},
	})
}

// A start tells its caller what it is at before it begins that.
func TestAStartTellsItsSteps(t *testing.T) {
	var steps []string
	o := ProbeOptions{
		Step: func(what string) { steps = append(steps, what) },
		measure: func(_ context.Context, b Backend, _ int) (int64, error) {
			steps = append(steps, "measured "+b.Name())
			return lucky, nil
		},
	}
	s := newSim(t, layouts[0].mount)
	o.Host, o.StateDir, o.Cores, o.Now, o.kernel = s.host, s.state, []int{0, 1}, func() int64 { return s.clock }, s.simKernel
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	name := c.Backend.Name()
	var want []string
	for _, n := range names()[:slices.Index(names(), name)+1] {
		want = append(want, "trying backend "+n)
	}
	if want = append(want, "measuring how late the budgets of backend "+name+" end", "measured "+name); !slices.Equal(steps, want) {
		t.Errorf("steps %q; want %q", steps, want)
	}
}

func (s *simTree) mustStart(want string) Choice {
	s.t.Helper()
	c, err := s.start(want)
	if err != nil {
		s.t.Fatalf("Start: %v (%v)", err, c.Findings)
	}
	return c
}

// fill has another group take all bandwidth that is left, and other deadline threads theirs.
func (s *simTree) fill() {
	s.t.Helper()
	s.fullOfDeadlines = true
	s.tree.Group("/foreign")
	dir, err := s.cg.Dir("cpu", "/foreign")
	if err != nil {
		s.t.Fatal(err)
	}
	f := &simFiles{k: s.simKernel, dir: dir}
	if f.inode, err = s.inode(dir); err != nil {
		s.t.Fatal(err)
	}
	for file, format := range map[string]string{rtRuntime: "%d", rtMax: "%d 1000000", rtMulti: "0-3 %d"} {
		for us, step := 0, 1<<19; step > 0; step /= 2 {
			if f.write(file, fmt.Sprintf(format, us+step)) == nil {
				us += step
			}
		}
	}
}

func (s *simTree) choice(text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.state, choiceFile), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// governing is a machine with real-time groups of which one is in force, and the process gone.
func governing(t *testing.T) (*simTree, containers) {
	t.Helper()
	s := newSim(t, layouts[0].mount)
	c := populate(s)
	first := s.mustStart("")
	if first.Backend.Name() != RTGroup || first.GranularityUs != 4_000 || first.Unmeasured != nil {
		t.Fatalf("the first start: %s, %d us, %v", first.Backend.Name(), first.GranularityUs, first.Unmeasured)
	}
	mustOpen(t, first.Backend, serverOf(c.first))
	return s, c
}

// TestAFullNodeStartsAgain with the backend that its containers are under, and writes nothing to find that out.
func TestAFullNodeStartsAgain(t *testing.T) {
	s, c := governing(t)
	s.choice(`{"boot":"boot-1","backend":"rtgroup","granularityUs":4123}`)
	s.fill()
	before := s.writes
	again := s.mustStart("")
	if again.Backend.Name() != RTGroup || again.GranularityUs != 4_123 || len(again.Notes) > 0 || again.Unmeasured != nil {
		t.Errorf("got %s, %d us, %q, %v; want rtgroup with the former granularity", again.Backend.Name(), again.GranularityUs, again.Notes, again.Unmeasured)
	}
	if s.writes != before {
		t.Errorf("it changed %q; want nothing", s.log[len(s.log)-(s.writes-before):])
	}
	kept := serverOf(c.first)
	kept.BudgetUs = 0
	g := mustOpen(t, again.Backend, kept)
	if err := g.Set(2_000); err != nil {
		t.Errorf("a raise: %v", err)
	}
	if got := s.get("cpu", c.first, rtRuntime); got != "2000" {
		t.Errorf("the kernel has %s us; want 2000", got)
	}
}

// TestAFullNodeWithoutARecord: the journal alone tells which backend works, and a tick is charged.
func TestAFullNodeWithoutARecord(t *testing.T) {
	for name, text := range map[string]string{
		"none": "", "cut": `{"boot":"boot-1","back`, "zeros": "\x00\x00\x00", "no boot": `{"backend":"fifo","granularityUs":1}`,
		"no backend": `{"boot":"boot-1","granularityUs":1}`, "nonsense": `{"boot":"boot-1","backend":"fifo","granularityUs":-1}`,
		"too late": `{"boot":"boot-1","backend":"fifo","granularityUs":1000001}`, "unknown backend": `{"boot":"boot-1","backend":"x","granularityUs":9}`,
		"another boot": `{"boot":"boot-0","backend":"fifo","granularityUs":9}`, "large": strings.Repeat(" ", maxChoice+1),
	} {
		t.Run(name, func(t *testing.T) {
			s, c := governing(t)
			s.choice(text)
			if name == "none" {
				if err := os.Remove(filepath.Join(s.state, choiceFile)); err != nil {
					t.Fatal(err)
				}
			}
			s.fill()
			again := s.mustStart("")
			if again.Backend.Name() != RTGroup || again.GranularityUs != 4_000 || !errors.Is(again.Unmeasured, ErrNoRoom) {
				t.Errorf("got %s, %d us, unmeasured: %v; want rtgroup and a tick", again.Backend.Name(), again.GranularityUs, again.Unmeasured)
			}
			if silent := name == "none" || name == "another boot"; silent != (len(again.Notes) == 0) {
				t.Errorf("notes %q", again.Notes)
			}
			if got := s.get("cpu", c.first, rtRuntime); got != "1000" {
				t.Errorf("the container has %s us; want 1000 still", got)
			}
			if next := s.mustStart(""); next.Unmeasured == nil || next.Unmeasured.Error() != again.Unmeasured.Error() {
				t.Errorf("the next start takes the tick over and says %v; want why it was never measured: %v", next.Unmeasured, again.Unmeasured)
			}
		})
	}
}

// TestEveryBackendThatNeedsBandwidth comes back on a full node, with its record and without.
func TestEveryBackendThatNeedsBandwidth(t *testing.T) {
	for _, l := range layouts[:7] {
		t.Run(l.name, func(t *testing.T) {
			s := newSim(t, l.mount)
			c := populate(s)
			first := s.mustStart(l.backend)
			mustOpen(t, first.Backend, serverOf(c.first))
			s.fill()
			before := s.snapshot()
			for _, remembered := range []bool{true, false} {
				if !remembered {
					s.choice("")
				}
				again := s.mustStart(l.backend)
				if again.Backend.Name() != l.backend || again.GranularityUs != first.GranularityUs {
					t.Errorf("remembered %v: %s, %d us; want %s, %d", remembered, again.Backend.Name(), again.GranularityUs, l.backend, first.GranularityUs)
				}
				if d := differences(before, s.snapshot()); len(d) > 0 {
					t.Errorf("remembered %v: it changed\n%s", remembered, strings.Join(d, "\n"))
				}
			}
		})
	}
}

// TestAStartNextToOthers, whose groups leave bandwidth for the trial but not for the self-test: a tick is charged, and the next start
// measures.
func TestAStartNextToOthers(t *testing.T) {
	s := newSim(t, layouts[0].mount)
	populate(s)
	s.tree.Group("/foreign")
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct/foreign/"+rtRuntime, "930000\n")
	if c := s.mustStart(""); c.Backend.Name() != RTGroup || c.GranularityUs != 4_000 || !errors.Is(c.Unmeasured, ErrNoRoom) {
		t.Errorf("got %s, %d us, unmeasured: %v", c.Backend.Name(), c.GranularityUs, c.Unmeasured)
	}
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct/foreign/"+rtRuntime, "0\n")
	if c := s.mustStart(""); c.Unmeasured != nil {
		t.Errorf("with room again: unmeasured: %v", c.Unmeasured)
	}
}

// TestNothingInForceIsChosenAnew: a machine may have become better since.
func TestNothingInForceIsChosenAnew(t *testing.T) {
	s := newSim(t, layouts[0].mount)
	populate(s)
	s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "-1\n")
	if c := s.mustStart(""); c.Backend.Name() != FIFO || c.GranularityUs != 60 {
		t.Fatalf("got %s, %d us", c.Backend.Name(), c.GranularityUs)
	}
	s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "950000\n")
	if c := s.mustStart(""); c.Backend.Name() != RTGroup {
		t.Errorf("with limits again: %s; want %s", c.Backend.Name(), RTGroup)
	}
	s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "-1\n")
	if c := s.mustStart(""); c.Backend.Name() != FIFO || len(c.Notes) > 0 {
		t.Errorf("without limits again: %s, %q", c.Backend.Name(), c.Notes)
	}
	// Servers that were promised something bind it, before their groups are there.
	s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "950000\n")
	c, err := Start(t.Context(), ProbeOptions{Host: s.host, StateDir: s.state, Now: func() int64 { return s.clock }, Governed: true, kernel: s.simKernel})
	if err != nil || c.Backend.Name() != FIFO {
		t.Errorf("with promises: %v, %v; want %s", c.Backend, err, FIFO)
	}
}

// TestAnotherBackendThanBefore is taken where it is asked for, or the former one works no more: then what that did is put back.
func TestAnotherBackendThanBefore(t *testing.T) {
	for name, change := range map[string]struct {
		want string
		do   func(*simTree)
	}{
		"asked for":     {CFS, func(*simTree) {}},
		"works no more": {"", func(s *simTree) { s.tree.Write("/proc/sys/kernel/sched_rt_runtime_us", "-1\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := governing(t)
			tid := s.spawn(c.first, unix.SCHED_FIFO)
			change.do(s)
			again := s.mustStart(change.want)
			if again.Backend.Name() == RTGroup || len(again.Notes) != 1 || !strings.Contains(again.Notes[0], RTGroup) {
				t.Errorf("got %s, %q; want another backend, and why", again.Backend.Name(), again.Notes)
			}
			for _, group := range append(above(c.first), c.first) {
				if got := s.get("cpu", group, rtRuntime); got != "0" {
					t.Errorf("%s keeps %s us of the former backend", group, got)
				}
			}
			if got := s.threads[tid].attr.Policy; got != unix.SCHED_NORMAL {
				t.Errorf("a real-time thread without a budget has policy %d; want 0", got)
			}
			if next := s.mustStart(change.want); next.Backend.Name() != again.Backend.Name() || len(next.Notes) > 0 {
				t.Errorf("the start after that: %s, %q", next.Backend.Name(), next.Notes)
			}
		})
	}
}

// TestAnotherBootIsChosenAnew: it may be one of another kernel, and control groups are gone after it.
func TestAnotherBootIsChosenAnew(t *testing.T) {
	s, _ := governing(t)
	s.choice(`{"boot":"boot-1","backend":"rtgroup","granularityUs":9}`)
	s.tree.Write("/proc/sys/kernel/random/boot_id", "boot-2\n")
	if c := s.mustStart(""); c.GranularityUs != 4_000 || len(c.Notes) > 0 {
		t.Errorf("got %d us, %q; want it measured anew", c.GranularityUs, c.Notes)
	}
}

// TestAStateDirectoryThatCannotBeWritten for the record is no reason not to start.
func TestAStateDirectoryThatCannotBeWritten(t *testing.T) {
	s := newSim(t, layouts[0].mount)
	populate(s)
	if err := os.MkdirAll(filepath.Join(s.state, choiceFile+".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c := s.mustStart(""); c.Backend.Name() != RTGroup || len(c.Notes) != 1 {
		t.Errorf("got %s, %q; want rtgroup and a note", c.Backend.Name(), c.Notes)
	}
}

// TestNothingWorks: the process starts all the same, and remembers nothing.
func TestNothingWorks(t *testing.T) {
	s := newSim(t, layouts[4].mount)
	s.refuseAll = true
	s.closed = true
	if c := s.mustStart(""); c.Backend.Name() != Blocked || c.GranularityUs != 0 {
		t.Errorf("got %s, %d us", c.Backend.Name(), c.GranularityUs)
	}
	if _, err := os.Stat(filepath.Join(s.state, choiceFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a record was kept: %v", err)
	}
}

// TestBudgetsThatNothingEnds are none to promise.
func TestBudgetsThatNothingEnds(t *testing.T) {
	s := newSim(t, layouts[0].mount)
	populate(s)
	_, err := Start(t.Context(), ProbeOptions{
		Host: s.host, StateDir: s.state, Now: func() int64 { return s.clock }, kernel: s.simKernel,
		measure: func(context.Context, Backend, int) (int64, error) { return 0, errNotEnforced },
	})
	if !errors.Is(err, errNotEnforced) {
		t.Errorf("Start: %v; want %v", err, errNotEnforced)
	}
}

// TestEndsAtTicks: only a timer makes a sample below a tick more than luck.
func TestEndsAtTicks(t *testing.T) {
	for _, c := range []struct {
		layout   int
		features string
		want     int64
	}{
		{0, "HRTICK HRTICK_DL", 4_000},
		{1, "", 4_000}, {1, "NO_HRTICK_DL", 4_000}, {1, "HRTICK_DL", lucky},
		{3, "", 60},
		{5, "", 4_000}, {5, "HRTICK NO_HRTICK_DL", 4_000}, {5, "HRTICK_DL", 60},
		{7, "HRTICK", 4_000},
	} {
		l := layouts[c.layout]
		s := newSim(t, func(tree *hosttest.Tree) {
			l.mount(tree)
			if c.features != "" {
				tree.Write("/sys/kernel/debug/sched/features", c.features+"\n")
			}
		})
		populate(s)
		if got := s.mustStart(l.backend).GranularityUs; got != c.want {
			t.Errorf("%s with features %q: %d us; want %d", l.name, c.features, got, c.want)
		}
	}
}
