// Package rtruntime runs real-time containers: it gives each the core that the admission test proved,
// writes what a node should run into its RTNode, and tells McKubes and pods what became of them.
//
// Four loops share the state cache and nothing else: McKubes (mckube.go), nodes (nodes.go), pods for which
// room is made (preemption.go) and pods that wait for them (yield.go). Every loop decides on one
// snapshot of the cache by pure functions, then acts, and may be repeated at any point: what it
// remembers beyond API objects are times, and what it wrote that the cache does not show yet.
package rtruntime

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// FieldManager owns what the controllers apply.
const FieldManager = "mainspring"

const (
	// workers of each loop but the one that plans preemptions.
	workers = 10
	// timeout bounds one Reconcile, so that an API server that hangs holds no worker.
	timeout = 30 * time.Second
	// unsynced is when to ask again whether the cache is complete.
	unsynced = 250 * time.Millisecond
	// soon is when to try again what a conflict or a cache that lags has stopped.
	soon = 100 * time.Millisecond
)

// Dependencies are the collaborators of the loops. All are required.
type Dependencies struct {
	Clock    clock.Clock
	Client   client.Client
	Recorder karpenterevents.Recorder
	Store    *state.Store
	// InFlight tells whether a node may still come for a pending pod: a node is being provisioned for it, or no
	// provisioner has yet decided that none will come.
	InFlight func(ctx context.Context, pod *corev1.Pod) bool
	// Planned tells whether a provisioner has decided on a node for the pod.
	Planned func(ctx context.Context, pod *corev1.Pod) bool
	// Placement tells where pods would be placed.
	Placement Placement
	// Actions is the orchestration queue, in which preemptions take their turn.
	Actions Actions
	// Rearrange is the executor of actions that move containers between the cores of a node.
	Rearrange *Rearrange
	// FreedCapacity is called after capacity was freed or claimed otherwise than by pods coming and going.
	FreedCapacity func()
	Options       Options
}

// Placement tells where pods would be placed (pkg/placement).
type Placement interface {
	// Asking answers why pods would not all be placed on a node once some pods have gone; empty: they would.
	Asking(pods ...*corev1.Pod) func(ctx context.Context, node string, gone map[types.UID]bool) (why string, err error)
}

// Options are the settings of the loops.
type Options struct {
	// Granularity is what every budget is charged beyond itself, in microseconds.
	Granularity int64
	// PreemptionDelay is how long a pod must be unschedulable before room is made for it.
	PreemptionDelay time.Duration
	// AgentTimeout is how long an agent may be silent.
	AgentTimeout time.Duration
}

// NewControllers returns the loops.
func NewControllers(d Dependencies) []controller.Controller {
	metrics.Charged.Set(float64(d.Options.Granularity) / 1e6)
	return []controller.Controller{newMcKubes(d), newNodes(d), newPreemptions(d), &yields{d}}
}

// publish records Events.
func (d Dependencies) publish(list ...events.Event) {
	for _, e := range list {
		d.Recorder.Publish(karpenterevents.Event{
			InvolvedObject: e.Object, Type: e.Type, Reason: e.Reason, Message: e.Message, DedupeValues: e.Dedupe,
		})
	}
}

// onChange feeds a loop from the cache: first everything that initial lists, then what pick chooses of each
// change. A Reconcile so never runs before the cache knows what woke it. It listens from now on, because
// the cache takes no listeners once it is fed, and drops changes until the loop starts.
func onChange(store *state.Store, initial func(*state.Snapshot) []reconcile.Request, pick func(*state.Snapshot, state.Change) []reconcile.Request) source.Source {
	var started atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
	store.Listen(func(c state.Change) {
		queue := started.Load()
		if queue == nil {
			return
		}
		for _, request := range pick(store.Snapshot(), c) {
			(*queue).Add(request)
		}
	})
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		started.Store(&queue)
		for _, request := range initial(store.Snapshot()) {
			queue.Add(request)
		}
		return nil
	})
}

// settled turns what is no fault into a retry: others wrote first, or the object is not there (any more).
func settled(result reconcile.Result, err error) (reconcile.Result, error) {
	if err == nil || !lost(err) {
		return result, err
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// lost tells whether a write was refused because the object has changed since it was read.
func lost(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// earliest is the shorter of two waits; 0 is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
