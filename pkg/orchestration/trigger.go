package orchestration

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// trigger wakes a loop. Fired before the loop has started, it does nothing: a loop that starts looks at everything.
type trigger struct {
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// fire has the loop look at something.
func (t *trigger) fire(name string) {
	if queue := t.queue.Load(); queue != nil {
		(*queue).Add(request(name))
	}
}

// source feeds the loop, from now on, beginning with some names.
func (t *trigger) source(first ...string) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.queue.Store(&queue)
		for _, name := range first {
			queue.Add(request(name))
		}
		return nil
	})
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
