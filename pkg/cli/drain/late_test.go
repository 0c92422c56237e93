package drain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A pod that comes between the look at what would be lost and the cordon, and one that comes after it (the scheduler was about to place it there, or it tolerates the
// cordon), leave the node like the others.
func TestPodsThatComeMeanwhileLeaveTheNodeToo(t *testing.T) {
	for what, when := range map[string]func(s *site) bool{
		"before the cordon":    func(s *site) bool { return s.looks >= 4 }, // node, pods and McKubes were read; the node is read once more to be cordoned
		"after it":             func(s *site) bool { return strings.Contains(s.out.String(), "one is to migrate") },
		"while the first goes": func(s *site) bool { return strings.Contains(s.out.String(), "one runs on node elsewhere") },
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			s.pod("one", "ReplicaSet")
			s.becomes["one"], s.becomes["late"] = v1alpha1.MigrationSucceeded, v1alpha1.MigrationSucceeded
			came := false
			s.act = func(int) {
				if !came && when(s) {
					came = true
					s.pod("late", "StatefulSet")
				}
			}
			if err := s.drain().Run(t.Context()); err != nil {
				t.Errorf("%v\n%s", err, s.out.String())
			}
			s.expect("pods", s.pods(), "")
			s.expect("migrations", s.migrations(), "late:Drain:Succeeded one:Drain:Succeeded")
			if !strings.Contains(s.out.String(), "is drained: 2 pods moved, 0 evicted") {
				t.Error(s.out.String())
			}
		})
	}
}

// One that would be lost stays, and what is made on the node again and again is not driven off for ever: the node is not said to be drained.
func TestANodeThatIsNotEmptyIsNotDrained(t *testing.T) {
	s := newSite(t)
	s.pod("one", "ReplicaSet")
	s.becomes["one"] = v1alpha1.MigrationSucceeded
	came := false
	s.act = func(int) {
		if !came && s.cordoned() {
			came = true
			s.pod("bare", "")
		}
	}
	err := s.drain().Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is not drained, and stays cordoned: pod "+s.namespace+"/bare: it has come meanwhile: no controller owns it") {
		t.Errorf("%v\n%s", err, s.out.String())
	}
	s.expect("pods", s.pods(), "bare")

	s = newSite(t)
	n := 0
	again := func() {
		n++
		name := fmt.Sprintf("p%d", n)
		s.becomes[name] = v1alpha1.MigrationSucceeded
		s.pod(name, "ReplicaSet")
	}
	again()
	s.act = func(int) {
		if s.pods() == "" {
			again()
		}
	}
	err = s.drain().Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "p3: it has come although the node is cordoned") {
		t.Errorf("%v\n%s", err, s.out.String())
	}
	s.expect("pods", s.pods(), "p3")
}
