package ladder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// timeout bounds one Reconcile, so that an API server that hangs does not hold the loop.
	timeout = 30 * time.Second
	// unsynced is when to ask again whether the cache is complete, or the queue ready.
	unsynced = 250 * time.Millisecond
	// soon is when to try again what a conflict or a cache that lags has stopped.
	soon = 50 * time.Millisecond
	// attentive is the longest time between two looks at a node under pressure. The queue forgets the actions for a cause ten
	// minutes after the last query.
	attentive = time.Minute
	// replan is the time until the next plan if no action would help. It is also the longest wait after an error, so that the
	// controller answers soon after an outage.
	replan = 5 * time.Second
)

// Actions is the part of the orchestration queue that the controller needs.
type Actions interface {
	Submit(ctx context.Context, r orchestration.Request) (orchestration.Ticket, error)
	Find(r orchestration.Request) (orchestration.Ticket, bool)
	Withdraw(ctx context.Context, name, why string) error
	ForCause(cause string) ([]*v1alpha1.RTAction, error)
	HoldsPod(uid types.UID) string
	Listen(f func(*v1alpha1.RTAction))
}

// Passage is how a pod would go to another node.
type Passage struct {
	// Veto is why it must not go; empty: it may.
	Veto string
	// Beside: another pod serves before it goes.
	Beside bool
	// Anywhere: the same goes for every node.
	Anywhere bool
	// Anew is why it would begin anew, though its state was to come along; Bound: it goes with its state or not at all.
	Anew  string
	Bound bool
	// Timeout is how long that may take; 0: as long as moves usually do.
	Timeout time.Duration
}

// Dependencies are the collaborators of the loop. All are required.
type Dependencies struct {
	Clock    clock.Clock
	Client   client.Client
	Recorder karpenterevents.Recorder
	Store    *state.Store
	Actions  Actions
	// Passage is how the migration controller would move a pod to a node that has room for it; without a node, to any node.
	Passage func(ctx context.Context, pod *state.PodView, node string) (Passage, error)
	Options Options
}

// ladder is the loop over nodes. It has one worker: each plan sees what the one before has asked for.
type ladder struct {
	Dependencies
	memories map[string]*memory
	waking   atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// New makes the loop. It listens to the cache and the queue from now on.
func New(d Dependencies) controller.Controller {
	l := &ladder{Dependencies: d, memories: map[string]*memory{}}
	d.Store.Listen(func(c state.Change) { l.wake(c.Nodes...) })
	d.Actions.Listen(func(o *v1alpha1.RTAction) {
		if o.Spec.Reason == ReasonPressure || o.Spec.Reason == ReasonRecovery {
			l.wake(o.Spec.Node)
		}
	})
	return l
}

// wake has the loop look at nodes, once it runs.
func (l *ladder) wake(nodes ...string) {
	queue := l.waking.Load()
	if queue == nil {
		return
	}
	for _, name := range nodes {
		(*queue).Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

// Register adds the loop to a manager.
func (l *ladder) Register(_ context.Context, m manager.Manager) error {
	begin := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		l.waking.Store(&queue)
		for n := range l.Store.Snapshot().Nodes() {
			l.wake(n.Name)
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(m).
		Named("ladder").
		WatchesRawSource(begin).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soon, replan),
		}).
		Complete(l)
}

// Reconcile takes the next step of the answer to a node's pressure.
func (l *ladder) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if l.Store.Synced() != nil {
		return reconcile.Result{RequeueAfter: unsynced}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	snapshot := l.Store.Snapshot()
	n, ok := snapshot.NodeView(req.Name)
	if !ok || n.UID == "" || n.RTNode == nil {
		return l.settled(0, l.leave(ctx, req.Name, n))
	}
	wait, err := l.keep(ctx, snapshot, n)
	return l.settled(wait, err)
}

// settled turns an error that is no fault into a retry: another client wrote first, the object is gone, the queue is not ready.
func (l *ladder) settled(wait time.Duration, err error) (reconcile.Result, error) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: wait}, nil
	case errors.Is(err, orchestration.ErrNotReady):
		return reconcile.Result{RequeueAfter: unsynced}, nil
	case errors.As(err, &status) && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{}, err
}

// forbidden tells whether the API server refused a write and would refuse it again, as by a policy. A conflict is not such a
// refusal. Neither is a timeout, after which it is unknown whether the write is stored.
func forbidden(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) {
		return false
	}
	return !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err)
}

// memory returns the memory of a node. It makes a new one if another Node has the name.
func (l *ladder) memory(ctx context.Context, n *state.NodeView) (*memory, error) {
	if m := l.memories[n.Name]; m != nil && m.node == n.UID {
		return m, nil
	}
	if err := l.forget(ctx, n.Name); err != nil {
		return nil, err
	}
	m := &memory{node: n.UID}
	l.memories[n.Name] = m
	return m, nil
}

// keep looks at a node and carries out one step.
func (l *ladder) keep(ctx context.Context, snapshot *state.Snapshot, n *state.NodeView) (time.Duration, error) {
	now := l.Clock.Now()
	m, err := l.memory(ctx, n)
	if err != nil {
		return 0, err
	}
	if m.behind(n, now) {
		return soon, nil
	}
	s, err := l.look(snapshot, n, m, now)
	if err != nil {
		return 0, err
	}
	v := visit{ladder: l, snapshot: snapshot, node: n, memory: m, scene: s}
	v.report()
	v.scene.Entered = m.entered
	next := v.scene.next()
	for _, name := range next.Withdraw {
		if err := l.Actions.Withdraw(ctx, name, "The pressure has changed, and nobody needs it any longer"); err != nil {
			return 0, fmt.Errorf("withdrawing action %s: %w", name, err)
		}
	}
	wait, err := v.take(ctx, next)
	if s.Active {
		wait = min(wait, attentive)
	}
	return wait, err
}

// look collects the input of the next decision.
func (l *ladder) look(snapshot *state.Snapshot, n *state.NodeView, m *memory, now time.Time) (scene, error) {
	s := scene{
		Episode: episodeOf(n), Sees: sees(n), Closing: n.Deleting, Tainted: n.Tainted(taintKey),
		Options: l.Options, Now: now,
	}
	s.Silent = m.silence(s.Sees, now)
	if s.Sees {
		m.watch, s.Affected = m.watch.look(n, s.Pressed(), l.Options, now)
		s.Affected = slices.DeleteFunc(s.Affected, func(x AffectedContainer) bool { return !stays(snapshot, x.PodUID) })
		s.Sure = m.watch.sure(l.Options, now)
	}
	if s.Active {
		for _, cause := range s.answers() {
			list, err := l.Actions.ForCause(cause)
			if err != nil {
				return s, err
			}
			s.Answers = append(s.Answers, list...)
		}
		var err error
		if s.Returns, err = l.Actions.ForCause(s.RecoveryCause()); err != nil {
			return s, err
		}
		s.Orphaned = orphaned(snapshot, n, s)
	}
	return s, nil
}
