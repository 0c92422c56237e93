package orchestration_test

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// policy has the API server refuse every write of the record of actions of a reason while it is in force.
type policy struct {
	client.WithWatch
	reason string
	off    bool
}

func (p *policy) guarded() client.WithWatch {
	return interceptor.NewClient(p.WithWatch, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if a, ok := o.(*v1alpha1.RTAction); ok && !p.off && a.Spec.Reason == p.reason {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "rtactions"}, a.Name, nil)
			}
			return api.SubResource(sub).Update(ctx, o, opts...)
		},
	})
}

// An action whose record the queue may not write stays as it is. It keeps what it uses under the next leader, which cannot
// know whether it had begun. All other actions go on, under both leaders. When the queue may write it again it has its turn.
func TestAnActionThatCannotBeWrittenStopsNoOther(t *testing.T) {
	s := newStage(t)
	s.faulty = true // its runner says that it cannot be written
	for _, n := range []string{"n1", "n2", "n3"} {
		s.node(n)
	}
	rule := &policy{WithWatch: s.api, reason: "Bad"}
	s.api = rule.guarded()
	p := s.spawn()
	pod := s.pod("a")
	s.turns(p, 2)
	s.submit(p, s.request(rules.Migrate, "Bad", "n1", pod))
	s.clock.Step(time.Second)
	s.submit(p, s.request(rules.Migrate, "Good", "n2", s.pod("b")))
	s.turns(p, 20)
	if got := s.summary(); !slices.Contains(got, "Good Succeeded") {
		t.Errorf("with an action that cannot be written: %q", got)
	}
	q := s.spawn()
	s.turns(q, 3)
	s.submit(q, s.request(rules.Migrate, "Late", "n3", s.pod("c")))
	s.submit(q, s.request(rules.Migrate, "Rival", "n3", pod))
	s.turns(q, 20)
	if got := s.summary(); !slices.Contains(got, "Late Succeeded") || !slices.Contains(got, "Rival Waiting for InUse") {
		t.Errorf("under the next leader: %q", got)
	}
	rule.off = true
	s.turns(q, 30)
	if got := s.summary(); !slices.Contains(got, "Bad Succeeded") {
		t.Errorf("with the policy gone: %q", got)
	}
}
