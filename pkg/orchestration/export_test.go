package orchestration

import "sigs.k8s.io/controller-runtime/pkg/reconcile"

// Dispatcher and Runner are the loops of a queue.
func Dispatcher(q *Queue) reconcile.Reconciler { return &dispatcher{q} }

// Runner takes steps.
func Runner(q *Queue) reconcile.Reconciler { return &runner{q} }

// Names of all actions that the queue knows.
func Names(q *Queue) (out []string) {
	for _, o := range q.ledger.all() {
		out = append(out, o.Name)
	}
	return out
}

// Bounds of what is kept.
const (
	Retention = retention
	Kept      = kept
	Rest      = rest
	RestMost  = restMost
)
