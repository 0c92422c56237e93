package orchestration_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A node that consolidation is closing serves until its replacement is there. An action that helps a pod under pressure on the
// node, and brings no pod to it, does not wait for that.
func TestAPodUnderPressureOnANodeThatIsBeingClosedIsHelped(t *testing.T) {
	s := newStage(t)
	for _, n := range []string{"closing", "open"} {
		s.node(n)
	}
	s.nodes.disrupted["closing"] = "is being replaced"
	s.nodes.allowed["pool"] = 1
	p := s.spawn()
	s.turns(p, 1)
	within := s.request(rules.Rearrange, "AWithin", "closing")
	s.submit(p, within)
	s.turns(p, 4)
	off := s.request(rules.Migrate, "BOff", "closing", s.pod("a1"))
	off.TargetNode = "open"
	s.submit(p, off)
	s.submit(p, s.request(rules.OpenNode, "COpens", "closing", s.pod("a2")))
	onto := s.request(rules.Migrate, "DOnto", "open", s.pod("a3"))
	onto.TargetNode = "closing"
	s.submit(p, onto)
	s.submit(p, s.request(rules.Preempt, "EEvicts", "closing", s.pod("a4")))
	replaces := s.request(rules.ReplaceNode, "FReplaces", "closing")
	replaces.NodePool = "pool"
	s.submit(p, replaces)
	s.turns(p, 6)
	s.is("AWithin Succeeded", "BOff Succeeded", "COpens Succeeded", "DOnto Waiting for NodeBeingDisrupted",
		"EEvicts Waiting for NodeBeingDisrupted", "FReplaces Waiting for NodeBeingDisrupted")
}

// Attempts that a disruption of their node kept from beginning say nothing about the next: it comes after the shortest rest, also under the next
// leader. What was tried in vain makes the rest longer as ever.
func TestADisruptionMakesNoRestLonger(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.conduct["NoCore"] = conduct{givesUp: true}
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Preempt, "NoCore", "n1", s.pod("a1"))
	rest := func(phase rules.Phase) time.Duration {
		t.Helper()
		r.StartBy = s.clock.Now().Add(10 * time.Second)
		s.submit(p, r)
		s.turns(p, 12)
		ticket := s.submit(p, r)
		if ticket.Phase != phase {
			t.Fatalf("it is %s, want %s", ticket.Phase, phase)
		}
		out := ticket.Again.Sub(s.action(ticket.Name).Status.PhaseTime.Time)
		s.clock.SetTime(ticket.Again)
		return out
	}
	s.nodes.disrupted["n1"] = "is being replaced"
	for attempt := range 4 {
		if got := rest(rules.Expired); got != orchestration.Rest {
			t.Errorf("attempt %d: a rest of %s, want %s", attempt+1, got, orchestration.Rest)
		}
		if attempt == 2 {
			p = s.spawn()
			s.turns(p, 1)
		}
	}
	delete(s.nodes.disrupted, "n1")
	if first, second := rest(rules.RolledBack), rest(rules.RolledBack); first != orchestration.Rest || second != 2*orchestration.Rest {
		t.Errorf("rests of %s and %s after two attempts in vain", first, second)
	}
}

// An action would replace a node that has the last place in its NodePool's budget, as another controller is closing it. Then
// the action waits for the node: the controller that closes it gives way to that. It begins when the node is open and the
// place is free. It waits for the budget where that would not help.
func TestANodeThatIsGoingHasItsOwnPlaceInTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		going int
		want  string
		open  int
		then  string
	}{
		"its place is the last":           {going: 0, want: "Waiting for NodeBeingDisrupted", open: 1, then: "Succeeded"},
		"somebody else has taken it":      {going: 0, want: "Waiting for NodeBeingDisrupted", open: 0, then: "Waiting for NodePoolBudget"},
		"more go than may":                {going: -1, want: "Waiting for NodePoolBudget", open: 0, then: "Waiting for NodePoolBudget"},
		"there is a place beside its own": {going: 1, want: "Waiting for NodeBeingDisrupted", open: 2, then: "Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			s.nodes.disrupted["n1"], s.nodes.allowed["pool"] = "is being replaced", c.going
			p := s.spawn()
			s.turns(p, 1)
			r := s.request(rules.ReplaceNode, "Replaces", "n1")
			r.NodePool = "pool"
			s.submit(p, r)
			s.turns(p, 2)
			s.is("Replaces " + c.want)
			delete(s.nodes.disrupted, "n1")
			s.nodes.allowed["pool"] = c.open
			s.turns(p, 4)
			s.is("Replaces " + c.then)
		})
	}
}
