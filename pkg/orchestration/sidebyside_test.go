package orchestration_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// While one request is being stored others are, too: of 200 migrations that are asked for at once the last would wait for all others else. Two for the
// same thing are one action.
func TestRequestsAreStoredSideBySide(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	arrived, let := make(chan string, 3), make(chan struct{})
	held := interceptor.NewClient(s.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if action, ok := o.(*v1alpha1.RTAction); ok {
				arrived <- action.Spec.Reason
				<-let
			}
			return c.Create(ctx, o, opts...)
		},
	})
	q, err := orchestration.New(orchestration.Dependencies{
		Clock: s.clock, Client: held, Reader: s.api, Recorder: &told{}, Nodes: s.nodes, Lease: client.ObjectKey{Namespace: "default", Name: "queue"}, Identity: "one",
	})
	s.must(err)
	_, err = q.Loops()[0].Reconcile(t.Context(), reconcile.Request{}) // which takes over
	s.must(err)
	type answer struct {
		orchestration.Ticket
		error
	}
	answers := make(chan answer, 3)
	pods := map[string]v1alpha1.ActionPod{"First": s.pod("a1"), "Second": s.pod("b1")}
	for _, reason := range []string{"First", "First", "Second"} {
		r := s.request(rules.Preempt, reason, "n1", pods[reason])
		go func() {
			ticket, err := q.Submit(t.Context(), r)
			answers <- answer{ticket, err}
		}()
	}
	stored := map[string]bool{}
	for range 2 {
		select {
		case reason := <-arrived:
			stored[reason] = true
		case <-time.After(30 * time.Second):
			close(let)
			t.Fatalf("only %v is being stored", stored)
		}
	}
	close(let)
	tickets := map[string]int{}
	for range 3 {
		a := <-answers
		s.must(a.error)
		tickets[a.Name]++
	}
	if len(stored) != 2 || len(tickets) != 2 || len(s.actions()) != 2 || len(arrived) != 0 {
		t.Errorf("%v were stored at once, as %d actions with tickets %v, and %d more after them; want both at once, each once", stored, len(s.actions()), tickets, len(arrived))
	}
}
