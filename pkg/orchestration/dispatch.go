package orchestration

import (
	"context"
	"errors"
	"fmt"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// dispatcher decides what starts. There is one, with one worker.
type dispatcher struct{ *Queue }

// Register implements controller.Controller.
func (d *dispatcher) Register(_ context.Context, m manager.Manager) error {
	anew := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request("")}
	})
	return controllerruntime.NewControllerManagedBy(m).
		Named("orchestration.dispatch").
		WatchesRawSource(d.dispatching.source("")).
		Watches(&policyv1.PodDisruptionBudget{}, anew).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			// The longest wait is short: after an outage what is late must be ended, and what waits must start, at once.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, 2*time.Second),
		}).
		Complete(d)
}

// Reconcile goes through the queue once.
func (d *dispatcher) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !d.ready.Load() {
		if wait := d.idle(); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		if err := d.takeOver(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	wait, err := d.round(ctx)
	if errors.Is(err, errMoved) { // decide again, on what it is now
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// round ends what is late or no longer wanted, starts what may, notes what the others wait for, and drops what is
// long over. The order is a contract: what starts is decided after everything that was in doubt is known, on versions
// that were read before the gate was seen to be held.
func (q *Queue) round(ctx context.Context) (time.Duration, error) {
	if err := q.ledger.clarify(ctx); err != nil {
		return 0, err
	}
	refused := &refusals{}
	if err := q.expire(ctx, refused); err != nil {
		return 0, err
	}
	actions := q.ledger.all()
	if err := q.mayAct(ctx); err != nil {
		return 0, err
	}
	p, err := q.picture(ctx, actions)
	if err != nil {
		return 0, err
	}
	if err := q.dispatch(ctx, p, refused); err != nil {
		return 0, err
	}
	if err := q.clean(ctx, refused); err != nil {
		return 0, err
	}
	q.measure(refused)
	return refused.delay(ctx, q.next()), nil
}

// expire ends phases whose time is over, and withdraws what users have deleted or what is not needed.
func (q *Queue) expire(ctx context.Context, refused *refusals) error {
	for _, o := range q.ledger.all() {
		if err := refused.take(o.Name, q.review(ctx, o)); err != nil {
			return err
		}
	}
	return nil
}

// review does that for one action.
func (q *Queue) review(ctx context.Context, o *v1alpha1.RTAction) error {
	if over(o) {
		return nil
	}
	why, err := q.unneeded(ctx, o)
	if err != nil {
		return err
	}
	_, said := q.said(o)
	age := func(a rules.Action, now time.Time) rules.Action {
		if a.Phase == phaseOf(o) {
			a.Message = said
		}
		if why != "" {
			a = a.Withdraw(why, now)
		}
		return a.Tick(now)
	}
	a, _ := record.Read(o) // for its phase
	if aged := age(a, q.Clock.Now()); aged.Phase == a.Phase && aged.Unwanted == a.Unwanted {
		return nil // as almost always
	}
	after, err := q.transition(ctx, o.Name, o.ResourceVersion, age)
	if err == nil && phaseOf(after).Holds() && phaseOf(after) != phaseOf(o) {
		q.running.fire(o.Name)
	}
	return err
}

// dispatch does what the rules say about the actions that wait. What starts comes before what is only told.
func (q *Queue) dispatch(ctx context.Context, p picture, refused *refusals) error {
	now := q.Clock.Now()
	var waits []rules.Verdict
	for _, v := range rules.Decide(p.actions, p.world(q.Options), q.Options.rules(), now) {
		o := p.objects[v.ID]
		var err error
		switch {
		case v.Refuse:
			err = q.refuse(ctx, o, v.Message)
		case v.Start:
			err = q.start(ctx, o)
		default:
			waits = append(waits, v)
		}
		if err := refused.take(o.Name, err); err != nil {
			return err
		}
	}
	for id, why := range p.impossible {
		if err := refused.take(p.objects[id].Name, q.refuse(ctx, p.objects[id], why)); err != nil {
			return err
		}
	}
	return q.notes(ctx, p, waits, refused)
}

// notes tells what actions wait for. With many new ones the rest is told in the next round, which comes at once: what
// has become urgent meanwhile does not wait for thousands of writes.
func (q *Queue) notes(ctx context.Context, p picture, waits []rules.Verdict, refused *refusals) error {
	written, now := 0, q.Clock.Now()
	for _, v := range waits {
		if written == notesAtOnce {
			q.dispatching.fire("")
			return nil
		}
		stored, err := q.note(ctx, p.objects[v.ID], v, now)
		if err := refused.take(p.objects[v.ID].Name, err); err != nil {
			return err
		}
		if stored {
			written++
		}
	}
	return nil
}

// start has an action run: from when that is stored. Where a user deletes it from then on, the queue undoes it first.
func (q *Queue) start(ctx context.Context, o *v1alpha1.RTAction) error {
	held, err := q.hold(ctx, o)
	if err != nil {
		return err
	}
	if _, err = q.transition(ctx, held.Name, held.ResourceVersion, rules.Action.Start); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	log.FromContext(ctx).Info("started action", "action", o.Name, "kind", o.Spec.Kind, "cause", o.Spec.Cause)
	q.running.fire(o.Name)
	return nil
}

// hold puts the finalizer on an action that was made without: it must not vanish while it runs, or what it has done would stay for good.
func (q *Queue) hold(ctx context.Context, o *v1alpha1.RTAction) (*v1alpha1.RTAction, error) {
	held := o.DeepCopy()
	if !o.DeletionTimestamp.IsZero() || !controllerutil.AddFinalizer(held, v1alpha1.FinalizerAction) {
		return o, nil
	}
	err := q.Client.Patch(ctx, held, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil && q.ledger.advance(o, held):
		return held, nil
	case err != nil && client.IgnoreNotFound(err) != nil && !isConflict(err):
		return nil, fmt.Errorf("holding action %s: %w", o.Name, err)
	}
	if err := q.ledger.refresh(ctx, o.Name); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("holding action %s: %w", o.Name, errMoved)
}

func (q *Queue) refuse(ctx context.Context, o *v1alpha1.RTAction, why string) error {
	_, err := q.transition(ctx, o.Name, o.ResourceVersion, func(a rules.Action, now time.Time) rules.Action { return a.Refuse(why, now) })
	return err
}

// note is what was last told about an action that waits, or is under way.
type note struct {
	// phase of the action then.
	phase           rules.Phase
	reason, message string
	// written is when it was last stored.
	written time.Time
	// progress is what is known of its progress beside what is stored, by the version that this is.
	progress map[string]string
	version  string
	// conflicts is since when its steps fail as others write what they would.
	conflicts time.Time
}

// seldom is how often a message that names others for the same reason is stored: with a long queue it changes each
// time an action ends. Tickets always have the last one.
const seldom = 10 * time.Second

// notesAtOnce is how many messages one round stores.
const notesAtOnce = 200

// note tells what an action waits for, and whether that had to be stored.
func (q *Queue) note(ctx context.Context, o *v1alpha1.RTAction, v rules.Verdict, now time.Time) (stored bool, err error) {
	q.lock.Lock()
	n := q.noted[o.Name]
	n.phase, n.reason, n.message = rules.Waiting, v.Reason, record.Short(v.Message, 1024)
	store := o.Status.WaitingFor != n.reason || o.Status.Message != n.message && now.Sub(n.written) >= seldom
	if store {
		n.written = now
	}
	q.noted[o.Name] = n
	q.lock.Unlock()
	if !store {
		return false, nil
	}
	_, err = q.change(ctx, o.Name, o.ResourceVersion, func(o *v1alpha1.RTAction) {
		o.Status.WaitingFor, o.Status.Message = n.reason, n.message
	})
	return true, err
}

// next is when to go through the queue again, should nothing wake the dispatcher before: at the next deadline, or soon
// when something waits for the world, which does not wake the dispatcher.
func (q *Queue) next() time.Duration {
	now, wait := q.Clock.Now(), retention
	for _, o := range q.ledger.all() {
		a, _ := record.Read(o) // what cannot be read is refused by now
		if a.Phase == rules.Waiting {
			wait = min(wait, again)
		}
		if deadline, ok := a.Deadline(); ok {
			wait = min(wait, max(deadline.Sub(now), time.Millisecond))
		}
	}
	return wait
}
