package orchestration

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// bell wakes a loop. Rung before the loop has started, it is not heard: a loop that starts looks at everything.
type bell struct {
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// ring has the loop look at something.
func (b *bell) ring(name string) {
	if queue := b.queue.Load(); queue != nil {
		(*queue).Add(request(name))
	}
}

// source feeds the loop, from now on, beginning with some names.
func (b *bell) source(first ...string) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		b.queue.Store(&queue)
		for _, name := range first {
			queue.Add(request(name))
		}
		return nil
	})
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
