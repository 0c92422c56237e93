package orchestration_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// What was done for a cause is known for as long as a controller asks, also to a process that has just taken over.
func TestActionsForACauseAreKeptWhileItIsAskedAbout(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	s.turns(p, 1)
	first := s.request(rules.Preempt, "First", "n1", s.pod("a1"))
	second := s.request(rules.Rearrange, "Second", "n1")
	other := s.request(rules.Rearrange, "Other", "n1")
	first.Cause, second.Cause = "cause/same", "cause/same"
	for _, r := range []orchestration.Request{second, other, first} {
		s.submit(p, r)
		s.clock.Step(time.Second)
	}
	expect := func(p *process, want ...string) {
		t.Helper()
		var got []string
		list, err := p.queue.ForCause("cause/same")
		s.must(err)
		for _, o := range list {
			got = append(got, o.Spec.Reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect(p, "Second", "First")
	s.turns(p, 6)
	s.is("First Succeeded", "Other Succeeded", "Second Succeeded")
	s.clock.Step(2 * orchestration.Retention)
	young := s.spawn()
	if list, err := young.queue.ForCause("cause/same"); !errors.Is(err, orchestration.ErrNotReady) {
		t.Errorf("%d actions, %v of a queue that has read none", len(list), err)
	}
	s.turns(young, 2)
	expect(young, "Second", "First")
	s.clock.Step(orchestration.Retention - 10*time.Second)
	s.turns(young, 2)
	expect(young, "Second", "First")
	s.clock.Step(orchestration.Retention + time.Minute)
	s.turns(young, 2)
	expect(young)
}
