package orchestration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// deleted is a stage with an action that waits and that a user has deleted, which no process has noticed yet.
func deleted(t *testing.T) (s *stage, p *process, r orchestration.Request, name string) {
	s = newStage(t)
	s.node("n1")
	s.budget("web", "a", 0)
	p = s.spawn()
	s.turns(p, 1)
	r = s.request(rules.Preempt, "NoCore", "n1", s.pod("a1"))
	name = s.submit(p, r).Name
	s.turns(p, 1)
	s.is("NoCore Waiting for PodDisruptionBudget")
	s.must(s.api.Delete(t.Context(), s.action(name)))
	return s, p, r, name
}

// Wherever the leader dies that takes a deletion in, the next one knows of it: a controller that asks again is told that the
// action was withdrawn, until its rest is over.
func TestADeletedActionStaysWithdrawnUnderTheNextLeader(t *testing.T) {
	for at := 1; ; at++ {
		s, p, r, name := deleted(t)
		p.at, p.fate = p.points+at, dies
		for range 4 {
			_ = p.turn() // it dies, or all is done
		}
		survived := !p.dead
		next := s.spawn()
		s.turns(next, 3)
		s.is()
		if again := s.submit(next, r); again.Name != name || again.Phase != rules.Withdrawn || again.Message != "It was deleted" {
			t.Errorf("dead at %d: asked again: %+v", at, again)
		}
		found, err := next.queue.ForCause(r.Cause)
		s.must(err)
		if len(found) != 1 || len(found[0].Spec.Pods) != 1 {
			t.Errorf("dead at %d: known for the cause: %v", at, found)
		}
		s.is()
		s.clock.Step(orchestration.Rest)
		if again := s.submit(next, r); again.Attempt != 2 {
			t.Errorf("dead at %d: asked after its rest: %+v", at, again)
		}
		if survived {
			return
		}
		if at > 20 {
			t.Fatal("it never gets through")
		}
		s.leave()
	}
}

// archived is what is stored of deleted actions.
func (s *stage) archived() string {
	s.Helper()
	lease := &coordinationv1.Lease{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Namespace: "default", Name: "queue"}, lease))
	return lease.Annotations["mckube.io/deleted-actions"]
}

func TestDeletionsAreForgottenInTime(t *testing.T) {
	s, p, _, name := deleted(t)
	s.turns(p, 3)
	if got := s.archived(); !strings.Contains(got, name) {
		t.Errorf("stored: %s", got)
	}
	s.clock.Step(2 * orchestration.Retention)
	s.turns(p, 1)
	if got := s.archived(); got != "" {
		t.Errorf("stored: %s", got)
	}
}

// An action that is over has no finalizer: it is gone at once, and known to have been, from the next round on.
func TestWhatWasDoneAndDeletedIsNotDoneAgain(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	p := s.spawn()
	s.turns(p, 1)
	r := s.request(rules.Rearrange, "NoCore", "n1")
	ticket := s.submit(p, r)
	s.turns(p, 4)
	s.is("NoCore Succeeded")
	s.must(s.api.Delete(t.Context(), s.action(ticket.Name)))
	s.turns(p, 10) // while its creation is young, by the API server's clock, the watch may be behind
	next := s.spawn()
	s.turns(next, 1)
	if again := s.submit(next, r); again.Phase != rules.Succeeded {
		t.Errorf("asked again: %+v", again)
	}
	s.is()
}

func TestDeletionsThatCannotBeReadAreNoHindrance(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "{", "nothing in it": `[null, {}]`, "what is not over": `[{"metadata": {"name": "x"}}]`} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			s.must(s.api.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "queue", Annotations: map[string]string{"mckube.io/deleted-actions": text},
			}}))
			p := s.spawn()
			s.turns(p, 1)
			s.submit(p, s.request(rules.Rearrange, "NoCore", "n1"))
			s.turns(p, 4)
			s.is("NoCore Succeeded")
		})
	}
}

// Two leaders, one of which does not know that it is none: neither loses what the other has stored.
func TestNoDeletionIsLostBetweenLeaders(t *testing.T) {
	s, p, r, _ := deleted(t)
	next := s.spawn()
	next.meanwhile = func() { s.turnOf(p) }
	next.at, next.fate = 3, sleepsBefore
	s.turns(next, 3)
	if again := s.submit(next, r); again.Phase != rules.Withdrawn {
		t.Errorf("asked again: %+v", again)
	}
}

// turnOf a process that may have been deposed.
func (s *stage) turnOf(p *process) {
	if err := p.turn(); err != nil {
		s.Logf("bears %v", err)
	}
}

// With more than an object holds, the last count.
func TestTheLastDeletionsAreStored(t *testing.T) {
	var all []*v1alpha1.RTAction
	for i := range 500 {
		o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: "action"}, Spec: v1alpha1.RTActionSpec{Cause: strings.Repeat("c", 256)}}
		o.Spec.Attempt = int32(499 - i) // the queue has the last first
		o.Status.PhaseTime = &metav1.MicroTime{Time: time.Unix(int64(i), 0)}
		all = append(all, o)
	}
	text, err := orchestration.Encode(all)
	if err != nil || len(text) > orchestration.DeletedMost || !strings.Contains(text, `"attempt":499,`) || strings.Contains(text, `"attempt":0,`) {
		t.Errorf("%v, %d bytes", err, len(text))
	}
	if none, err := orchestration.Encode(slices.Clone(all[:0])); err != nil || none != "" {
		t.Errorf("%v %q", err, none)
	}
}
