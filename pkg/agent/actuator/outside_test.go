package actuator

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// offline is what cgroup v1 does to a container whose only core goes offline (Documentation/admin-guide/cgroup-v1/cpusets.rst): its cpuset is
// emptied, and its tasks are moved to the pod's, which has others. Until the core is back its cpuset takes no CPU.
func (s *simTree) offline(group string) {
	s.t.Helper()
	own, err := s.cg.Dir("cpuset", group)
	if err != nil {
		s.t.Fatal(err)
	}
	s.tree.Write(strings.TrimPrefix(own, s.tree.Dir())+"/"+cpusetCPUs, "\n")
	for _, th := range s.threads {
		if th.groups[s.root("cpuset")] == own {
			th.groups[s.root("cpuset")] = own[:strings.LastIndex(own, "/")]
		}
	}
	s.refuse = cpusetCPUs
}

// emptiesCpusets: on v2 the kernel keeps what was asked for, and comes back to it by itself.
func (l layout) emptiesCpusets() bool {
	return strings.HasSuffix(l.name, "-v1") || l.backend == RTGroup
}

// cpusetOf is the group of a thread in cpuset's hierarchy.
func (s *simTree) cpusetOf(tid int) string {
	return strings.TrimPrefix(s.threads[tid].groups[s.root("cpuset")], s.root("cpuset"))
}

// outsideOf are the threads in a group of cpu, or below it, that are in another of cpuset.
func (s *simTree) outsideOf(group string) (tids []int) {
	own, err := s.cg.Dir("cpu", group)
	if err != nil {
		s.t.Fatal(err)
	}
	for tid, th := range s.threads {
		if at := th.groups[s.root("cpu")]; (at == own || below(at, own)) && s.cpusetOf(tid) != group {
			tids = append(tids, tid)
		}
	}
	return tids
}

// whereCpusetsEmpty runs a test in each layout of that kind, with a container that is where it is to be.
func whereCpusetsEmpty(t *testing.T, test func(*testing.T, *simTree, containers, Group)) {
	t.Helper()
	for _, l := range layouts {
		if !l.emptiesCpusets() {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, l.mount)
			c := populate(s)
			g := mustOpen(t, s.probe(l.backend), serverOf(c.first))
			if drift, err := g.Check(); err != nil || len(drift) > 0 {
				t.Fatalf("at first: %q, %v", drift, err)
			}
			test(t, s, c, g)
		})
	}
}

// A core that was offline and is back has its containers back, with all their threads.
func TestACoreThatWasOffline(t *testing.T) {
	whereCpusetsEmpty(t, func(t *testing.T, s *simTree, c containers, g Group) {
		pod := c.first[:strings.LastIndex(c.first, "/")]
		stranger := s.spawn(pod, unix.SCHED_NORMAL)
		s.offline(c.first)
		for range 20 {
			if drift, err := g.Check(); len(drift) == 0 && err == nil {
				t.Fatal("while the core is offline Check says nothing")
			}
		}
		s.refuse = ""
		// A thread makes another while it is moved.
		s.stepping = func(int) {
			s.stepping = nil
			made := s.spawn(c.first, unix.SCHED_NORMAL)
			s.threads[made].groups[s.root("cpuset")] = s.root("cpuset") + pod
		}
		told := false
		for range contestedEvery {
			drift, err := g.Check()
			told = told || err == nil && slices.ContainsFunc(drift, func(d string) bool { return strings.Contains(d, "in cpusets above its own") })
		}
		if out := s.outsideOf(c.first); len(out) > 0 || !told {
			t.Errorf("threads %v are outside the container's cpuset, and it was told: %v; want none, and that they were", out, told)
		}
		if at := s.cpusetOf(stranger); at != pod {
			t.Errorf("another thread of the pod's was moved to %s", at)
		}
		for range 2 * outsideEvery {
			if drift, err := g.Check(); err != nil || len(drift) > 0 {
				t.Errorf("afterwards: %q, %v", drift, err)
			}
		}
	})
}

// The core was back before any check looked, and something else has set the cpuset right: the threads are found all the same. So are those
// of groups that the container has made.
func TestThreadsAreFoundOutsideACpusetThatLooksRight(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	for range 3 { // a look is some checks ago
		if _, err := g.Check(); err != nil {
			t.Fatal(err)
		}
	}
	cpu, err := s.cg.Dir("cpu", c.first)
	if err == nil {
		err = s.makeGroup(cpu + "/init")
	}
	if err != nil {
		t.Fatal(err)
	}
	inner := s.spawn(c.first, unix.SCHED_NORMAL)
	s.threads[inner].groups[s.root("cpu")] = cpu + "/init"
	s.threads[inner].groups[s.root("cpuset")] = s.root("cpuset") // the root's
	var drift []string
	for range outsideEvery {
		found, err := g.Check()
		if err != nil {
			t.Fatal(err)
		}
		drift = append(drift, found...)
	}
	if out := s.outsideOf(c.first); len(out) > 0 || len(drift) != 1 {
		t.Errorf("threads %v are outside, told %q; want none, and that one was", out, drift)
	}
}

// What cannot be moved is told, and tried again at the next check.
func TestThreadsThatCannotBeMovedBack(t *testing.T) {
	s, c, b := rtSim(t)
	g := mustOpen(t, b, serverOf(c.first))
	s.offline(c.first)
	s.refuse = "tasks"
	for range 2 {
		if _, err := g.Check(); err == nil || !strings.Contains(err.Error(), "tasks of "+c.first) {
			t.Errorf("Check: %v; want the thread that could not be moved", err)
		}
	}
	s.refuse = ""
	if drift, err := g.Check(); err != nil || len(drift) != 1 || len(s.outsideOf(c.first)) > 0 {
		t.Errorf("Check: %q, %v, outside %v", drift, err, s.outsideOf(c.first))
	}
}

// A container whose core went offline is given another: its threads come along.
func TestAnotherCoreThanTheOneOffline(t *testing.T) {
	whereCpusetsEmpty(t, func(t *testing.T, s *simTree, c containers, g Group) {
		s.offline(c.first)
		if _, err := g.Check(); err == nil {
			t.Fatal("while the core is offline Check says nothing")
		}
		s.refuse = ""
		if err := g.Move(2); err != nil {
			t.Fatal(err)
		}
		if drift, err := g.Check(); err != nil || len(drift) != 1 || len(s.outsideOf(c.first)) > 0 {
			t.Errorf("Check: %q, %v, outside %v; want all threads where the container is", drift, err, s.outsideOf(c.first))
		}
	})
}
