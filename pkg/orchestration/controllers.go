package orchestration

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Loop is a control loop of the queue.
type Loop interface {
	reconcile.Reconciler
	Register(ctx context.Context, m manager.Manager) error
}

// Loops are what makes the queue work: the dispatcher, which takes any request for one to go through the queue, and the
// runner, which takes the names of actions. They run where the process leads, and nowhere else.
func (q *Queue) Loops() []Loop { return []Loop{&dispatcher{q}, &runner{q}} }
