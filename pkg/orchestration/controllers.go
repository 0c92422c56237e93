package orchestration

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Loop is a control loop of the queue.
type Loop interface {
	Register(ctx context.Context, m manager.Manager) error
}

// Loops are what makes the queue work: the dispatcher and the runner. They run where the process leads, and nowhere else.
func (q *Queue) Loops() []Loop { return []Loop{&dispatcher{q}, &runner{q}} }
