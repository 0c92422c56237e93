package actuator

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// rename a group in the hierarchies of controllers: descriptors go with it, and threads stay in it.
func (s *simTree) rename(group, to string, controllers ...string) {
	s.t.Helper()
	for _, c := range controllers {
		dir, err := s.cg.Dir(c, group)
		if err != nil {
			continue // they share a hierarchy
		}
		now := path.Join(path.Dir(dir), to)
		if err := os.Rename(dir, now); err != nil {
			s.t.Fatal(err)
		}
		moved := func(at string) string {
			if rest, within := strings.CutPrefix(at, dir); within && (rest == "" || rest[0] == '/') {
				return now + rest
			}
			return at
		}
		for _, f := range s.opened {
			f.dir = moved(f.dir)
		}
		for _, th := range s.threads {
			for root, at := range th.groups {
				th.groups[root] = moved(at)
			}
		}
	}
}

// whole is a snapshot in which the renamed group has its former name.
func (s *simTree) whole(now, before string) map[string]string {
	out := map[string]string{}
	for file, text := range s.snapshot() {
		out[strings.Replace(file, now+"/", before+"/", 1)] = text
	}
	return out
}

// renaming are the machines on which groups can be renamed: those whose hierarchies are of v1.
func renaming(t *testing.T) []layout {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(layouts), func(l layout) bool {
		s := newSim(t, l.mount)
		return s.cg.InUnified("cpu") && s.cg.InUnified("cpuset")
	})
}

// renames are what may become of the names of a container's group, and of its pod's.
var renames = []struct {
	name        string
	controllers []string
	pod         bool
}{
	{"everywhere", []string{"cpu", "cpuset"}, false},
	{"where its threads count", []string{"cpu"}, false},
	{"where its cores are", []string{"cpuset"}, false},
	{"with its pod", []string{"cpu", "cpuset"}, true},
}

// eachRename runs a test for a server whose group is renamed while its budget is ended (fifo: its threads are stopped or not). What was
// there before is to be there afterwards.
func eachRename(t *testing.T, stopped bool, undo func(t *testing.T, s *simTree, b Backend, g Group, l string)) {
	for _, l := range renaming(t) {
		for _, r := range renames {
			t.Run(l.name+" "+r.name, func(t *testing.T) {
				t.Parallel()
				s := newSim(t, l.mount)
				c := populate(s)
				own := s.spawn(c.first, unix.SCHED_NORMAL)
				before := s.snapshot()
				b := s.probe(l.backend)
				g := mustOpen(t, b, c.servers()[0])
				if err := g.Set(2_000); err != nil {
					t.Fatal(err)
				}
				if e, ok := g.(Enforcer); ok && stopped {
					if err := e.Throttle(); err != nil {
						t.Fatal(err)
					}
				}
				group := c.first
				if r.pod {
					group = path.Dir(c.first)
				}
				s.rename(group, "elsewhere", r.controllers...)
				undo(t, s, b, g, l.backend)
				if d := differences(before, s.whole(path.Join(path.Dir(group), "elsewhere"), group)); len(d) > 0 {
					t.Errorf("left:\n%s", strings.Join(d, "\n"))
				}
				if th := s.threads[own]; th.attr.Policy != unix.SCHED_NORMAL {
					t.Errorf("a thread has policy %d; want what it had, 0", th.attr.Policy)
				}
				m, err := openJournal(s.state, "boot-1")
				if err != nil || len(m.records) != 0 {
					t.Errorf("the journal has %v, %v; want nothing", m.records, err)
				}
			})
		}
	}
}

// A group that is renamed while it is governed is refused, and gets back what it had, under its new name.
func TestRenamedGroupGetsBackWhatItHad(t *testing.T) {
	eachRename(t, false, func(t *testing.T, s *simTree, b Backend, g Group, _ string) {
		if _, err := g.Check(); !errors.Is(err, ErrRenamed) || !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("Check: %v; want ErrRenamed", err)
		}
		if err := g.Close(true); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// So does one that no process had looked at before it was let go, stopped or not.
func TestRenamedGroupIsPutBackByTheSweep(t *testing.T) {
	eachRename(t, true, func(t *testing.T, s *simTree, b Backend, g Group, _ string) {
		if err := g.Close(false); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := b.Sweep(); err != nil {
			t.Errorf("Sweep: %v", err)
		}
	})
}

// And one that is renamed while no process lives that holds it open.
func TestRenamedGroupIsPutBackByTheNextProcess(t *testing.T) {
	eachRename(t, false, func(t *testing.T, s *simTree, _ Backend, _ Group, backend string) {
		b := s.probe(backend)
		if _, err := b.Sweep(); err != nil {
			t.Errorf("Sweep: %v", err)
		}
		if err := b.Restore(); err != nil {
			t.Errorf("Restore: %v", err)
		}
	})
}

// What cannot be put back in a renamed group is not forgotten.
func TestRenamedGroupIsRememberedUntilItIsPutBack(t *testing.T) {
	s, c, b := rtSim(t)
	before := s.snapshot()
	g := mustOpen(t, b, serverOf(c.first))
	s.rename(c.first, "elsewhere", "cpu", "cpuset")
	s.refuse = rtRuntime
	if err := g.Close(true); err == nil {
		t.Error("Close: nil; want what was refused")
	}
	if _, err := b.Sweep(); err == nil {
		t.Error("Sweep: nil; want what was refused")
	}
	s.refuse = ""
	if _, err := b.Sweep(); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if d := differences(before, s.whole(path.Join(path.Dir(c.first), "elsewhere"), c.first)); len(d) > 0 {
		t.Errorf("left:\n%s", strings.Join(d, "\n"))
	}
}

// A group made in the place of a renamed one is its successor; no process governs the renamed one.
func TestRenamedGroupWhosePlaceIsTaken(t *testing.T) {
	for _, l := range renaming(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			server := c.servers()[0]
			held := s.snapshot()
			b := s.probe(l.backend)
			g := mustOpen(t, b, server)
			s.replace(c.first)
			if err := g.Close(false); err != nil {
				t.Fatal(err)
			}
			mustOpen(t, b, server)
			s.expectElsewhere(c.first, held)
		})
	}
}

// replace a group by another of its name; it is "elsewhere" from then on.
func (s *simTree) replace(group string) {
	s.t.Helper()
	s.rename(group, "elsewhere", "cpu", "cpuset")
	for _, root := range []string{s.root("cpu"), s.root("cpuset")} {
		if err := s.makeGroup(root + group); err != nil && !errors.Is(err, os.ErrExist) {
			s.t.Fatal(err)
		}
	}
}

// expectElsewhere that a group which was replaced has what it held, and that no thread is anything but an ordinary one.
func (s *simTree) expectElsewhere(group string, held map[string]string) {
	s.t.Helper()
	for file, text := range s.snapshot() {
		former := strings.Replace(file, "/elsewhere/", "/"+path.Base(group)+"/", 1)
		if former != file && held[former] != text {
			s.t.Errorf("%s is %q; want %q", file, text, held[former])
		}
	}
	for tid, th := range s.threads {
		if th.attr.Policy != unix.SCHED_NORMAL {
			s.t.Errorf("thread %d has policy %d; want 0", tid, th.attr.Policy)
		}
	}
}

// A pod's group is renamed with its containers, and made anew: the way to a container leads to the new one, in which it is not.
func TestRenamedPodWhosePlaceIsTaken(t *testing.T) {
	for _, l := range renaming(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			held := s.snapshot()
			b := s.probe(l.backend)
			g := mustOpen(t, b, c.servers()[0])
			if l.backend == FIFO {
				s.breed(c.first, 1, c.servers()[0].Priority)
			}
			pod := path.Dir(c.first)
			s.replace(pod)
			if _, err := g.Check(); !errors.Is(err, ErrRenamed) {
				t.Errorf("Check: %v; want ErrRenamed", err)
			}
			if err := g.Close(true); err != nil {
				t.Errorf("Close: %v", err)
			}
			if _, err := b.Sweep(); err != nil {
				t.Errorf("Sweep: %v", err)
			}
			s.expectElsewhere(pod, held)
			if m, err := openJournal(s.state, "boot-1"); err != nil || len(m.records) != 0 {
				t.Errorf("the journal has %v, %v; want nothing", m.records, err)
			}
		})
	}
}

// Looking for a group that was removed costs a look at all others: that is made once, however much was changed in it, and not where
// it is known to have been removed, or groups cannot be renamed.
func TestARemovedGroupIsSoughtOnce(t *testing.T) {
	for name, letGo := range map[string]func(s *simTree, b Backend, g Group, backend string) error{
		"by who governs it": func(_ *simTree, _ Backend, g Group, _ string) error { return g.Close(true) },
		"by the next process": func(s *simTree, _ Backend, _ Group, backend string) error {
			b, _ := s.other(backend)
			return second(b.Sweep())
		},
	} {
		for _, l := range layouts {
			t.Run(l.name+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newSim(t, l.mount)
				c := populate(s)
				b := s.probe(l.backend)
				g := mustOpen(t, b, c.servers()[0])
				clear(s.threads)
				for _, root := range []string{s.root("cpu"), s.root("cpuset")} {
					if err := s.removeGroup(root + c.first); err != nil {
						t.Fatal(err)
					}
				}
				s.dying = nil
				clear(s.looked)
				if _, err := g.Check(); !errors.Is(err, ErrGone) || errors.Is(err, ErrRenamed) {
					t.Errorf("Check: %v; want ErrGone", err)
				}
				s.expectLooks(c, 0)
				if err := letGo(s, b, g, l.backend); err != nil {
					t.Error(err)
				}
				s.expectLooks(c, 1)
			})
		}
	}
}

// expectLooks at other containers: at most so many, and none in a hierarchy of v2.
func (s *simTree) expectLooks(c containers, most int) {
	s.t.Helper()
	for _, controller := range []string{"cpu", "cpuset"} {
		most := most
		if s.cg.InUnified(controller) {
			most = 0
		}
		for _, other := range []string{c.second, c.guaranteed, c.bestEffort} {
			if n := s.looked[s.root(controller)+other]; n > most {
				s.t.Errorf("%s of %s was looked at %d times; want at most %d", other, controller, n, most)
			}
		}
	}
}
