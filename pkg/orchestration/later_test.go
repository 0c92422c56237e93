package orchestration_test

import (
	"context"
	"maps"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// looker begins, finds something, and then does something, each a step. seen is what it knew at each step.
type looker struct{ seen []map[string]string }

func (l *looker) Step(_ context.Context, task orchestration.Task) (rules.Result, error) {
	l.seen = append(l.seen, maps.Clone(task.Progress))
	switch {
	case task.Progress["began"] == "":
		task.Progress["began"] = "yes"
		return rules.Result{Message: "has begun"}, nil
	case task.Progress["found"] == "":
		task.Progress["found"] = "it"
		return rules.Result{Later: []string{"found"}, Message: "found it"}, nil
	}
	task.Progress["did"] = "that"
	return rules.Result{Later: []string{"found"}, Message: "did that"}, nil
}

// What the next process finds again is not stored by itself. This process knows it, the next one finds it, and it is stored
// with what comes next.
func TestWhatIsFoundAgainIsStoredWithWhatComesNext(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	first, l := s.spawn(), &looker{}
	first.queue.Handle(rules.Preempt, l)
	s.turns(first, 1)
	ticket := s.submit(first, s.request(rules.Preempt, "First", "n1", s.pod("a1")))
	s.must(first.decide())
	s.must(first.run())
	version := s.action(ticket.Name).ResourceVersion
	s.must(first.run())
	if o := s.action(ticket.Name); o.ResourceVersion != version || len(l.seen) != 2 {
		t.Fatalf("after %d steps is stored %v: %s", len(l.seen), o.Status.Progress, o.Status.Message)
	}
	if now, ok := first.queue.Get(ticket.Name); !ok || now.Message != "found it" {
		t.Errorf("its ticket says %q", now.Message)
	}
	s.must(first.run())
	if len(l.seen) != 3 || l.seen[2]["found"] != "it" {
		t.Errorf("steps knew %v", l.seen)
	}
	if o := s.action(ticket.Name); o.Status.Progress["found"] != "it" || o.Status.Progress["did"] != "that" {
		t.Errorf("stored: %v", o.Status.Progress)
	}
}

// A process that takes over takes the step again, and so does this one once others have changed the action.
func TestWhatIsNotStoredIsFoundAgain(t *testing.T) {
	for name, other := range map[string]func(s *stage, p *process, action string) *process{
		"another process": func(s *stage, _ *process, _ string) *process { return s.spawn() },
		"withdrawn": func(s *stage, p *process, action string) *process {
			s.must(p.queue.Withdraw(s.Context(), action, "nobody wants it"))
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			p, l := s.spawn(), &looker{}
			p.queue.Handle(rules.Preempt, l)
			s.turns(p, 1)
			ticket := s.submit(p, s.request(rules.Preempt, "First", "n1", s.pod("a1")))
			s.must(p.decide())
			s.must(p.run())
			s.must(p.run())
			p = other(s, p, ticket.Name)
			p.queue.Handle(rules.Preempt, l)
			s.must(p.decide())
			s.must(p.run())
			if len(l.seen) != 3 || l.seen[1]["found"] != "" || l.seen[2]["found"] != "" || l.seen[2]["began"] == "" {
				t.Errorf("steps knew %v", l.seen)
			}
		})
	}
}

// That others have written what a step would have is not worth a write of its own, unless it goes on.
func TestAConflictIsToldWhereItStays(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.faulty = true
	p := s.spawn()
	s.turns(p, 1)
	s.conduct["First"] = conduct{failing: apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a1", nil)}
	r := s.request(rules.Preempt, "First", "n1", s.pod("a1"))
	ticket := s.submit(p, r)
	s.must(p.decide())
	version := s.action(ticket.Name).ResourceVersion
	for range 10 {
		s.must(p.run())
		s.clock.Step(time.Second)
	}
	if o := s.action(ticket.Name); o.ResourceVersion != version {
		t.Errorf("after 10 s is written %q", o.Status.LastError)
	}
	s.must(p.run())
	if o := s.action(ticket.Name); o.Status.LastError == "" {
		t.Error("that it goes on is not told")
	}
}
