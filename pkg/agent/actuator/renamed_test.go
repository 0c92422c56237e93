package actuator

import (
	"errors"
	"os"
	"path"
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
	for _, l := range layouts {
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

// So does one that nobody had looked at before it was let go, stopped or not.
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

// And one that is renamed while nobody lives who holds it open.
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

// A group made in the place of a renamed one is its successor; the renamed one is nobody's.
func TestRenamedGroupWhosePlaceIsTaken(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			server := c.servers()[0]
			held := s.snapshot()
			b := s.probe(l.backend)
			g := mustOpen(t, b, server)
			s.rename(c.first, "elsewhere", "cpu", "cpuset")
			for _, root := range []string{s.root("cpu"), s.root("cpuset")} {
				if err := s.makeGroup(root + c.first); err != nil && !errors.Is(err, os.ErrExist) {
					t.Fatal(err)
				}
			}
			if err := g.Close(false); err != nil {
				t.Fatal(err)
			}
			mustOpen(t, b, server)
			for file, text := range s.snapshot() {
				former := strings.Replace(file, "/elsewhere/", "/"+path.Base(c.first)+"/", 1)
				if former != file && held[former] != text {
					t.Errorf("%s is %q; want %q", file, text, held[former])
				}
			}
			for tid, th := range s.threads {
				if th.attr.Policy != unix.SCHED_NORMAL {
					t.Errorf("thread %d has policy %d; want 0", tid, th.attr.Policy)
				}
			}
		})
	}
}
