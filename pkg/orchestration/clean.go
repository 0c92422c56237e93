package orchestration

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
)

// clean lets those go that are over: a user may delete them at once, and the oldest go by themselves. Those that a user
// has deleted go once it is stored that they were.
func (q *Queue) clean(ctx context.Context, refused *refusals) error {
	held := slices.DeleteFunc(q.ledger.all(), func(o *v1alpha1.RTAction) bool {
		return !over(o) || !slices.Contains(o.Finalizers, v1alpha1.FinalizerAction)
	})
	for _, o := range held {
		if !o.DeletionTimestamp.IsZero() {
			q.drop(o)
		}
	}
	if err := q.archive(ctx); err != nil {
		return err
	}
	for _, o := range held {
		if err := refused.take(o.Name, q.release(ctx, o)); err != nil {
			return err
		}
	}
	for _, o := range q.disposable(q.Clock.Now()) {
		if err := refused.take(o.Name, q.dispose(ctx, o)); err != nil {
			return err
		}
	}
	q.forget()
	return q.archive(ctx)
}

// dispose of an action that no controller needs to know of any longer.
func (q *Queue) dispose(ctx context.Context, o *v1alpha1.RTAction) error {
	err := q.Client.Delete(ctx, o.DeepCopy(), client.Preconditions{UID: &o.UID, ResourceVersion: ptr.To(o.ResourceVersion)})
	if err != nil && client.IgnoreNotFound(err) != nil && !isConflict(err) {
		return fmt.Errorf("removing action %s: %w", o.Name, err)
	}
	return q.ledger.refresh(ctx, o.Name)
}

// release takes the finalizer off an action that is over.
func (q *Queue) release(ctx context.Context, o *v1alpha1.RTAction) error {
	free := o.DeepCopy()
	controllerutil.RemoveFinalizer(free, v1alpha1.FinalizerAction)
	err := q.Client.Patch(ctx, free, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	if err != nil && client.IgnoreNotFound(err) != nil && !isConflict(err) {
		return fmt.Errorf("releasing action %s: %w", o.Name, err)
	}
	if err == nil && free.DeletionTimestamp.IsZero() && q.ledger.advance(o, free) {
		return nil
	}
	return q.ledger.refresh(ctx, o.Name)
}

// disposable are the actions that are over and not needed any longer: no controller has asked about their cause for a while,
// and no further attempt at the same counts on them. Beyond so many they go earlier, the oldest first. They never do while an
// action for the same cause is under way, or while a controller still asks about the cause: the queue moves nothing twice for
// a cause only as long as it knows what it moved. Of attempts that moved nothing every controller needs the last ones only.
func (q *Queue) disposable(now time.Time) []*v1alpha1.RTAction {
	var outdone, candidates []*v1alpha1.RTAction
	all, superseded := q.ledger.all(), q.superseded()
	open := map[string]bool{}
	finished := 0
	for _, o := range all {
		switch {
		case !over(o):
			open[o.Spec.Cause] = true
		case superseded[o.Name]:
			outdone = append(outdone, o)
		default:
			finished++
		}
	}
	for _, o := range all {
		if over(o) && !superseded[o.Name] && !open[o.Spec.Cause] {
			candidates = append(candidates, o)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *v1alpha1.RTAction) int { return q.needed(a).Compare(q.needed(b)) })
	surplus := finished - kept
	return append(outdone, slices.DeleteFunc(candidates, func(o *v1alpha1.RTAction) bool {
		surplus--
		return now.Before(q.needed(o)) && (surplus < 0 || q.matters(o.Spec.Cause, now))
	})...)
}

// matters tells whether a cause was asked about only just now.
func (q *Queue) matters(cause string, now time.Time) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	asked, ok := q.asked[cause]
	return ok && now.Sub(asked) < needy
}

// needed is until when an action that is over must be known.
func (q *Queue) needed(o *v1alpha1.RTAction) time.Time {
	a, _ := record.Read(o) // it is over: times are all that counts
	last := a.Entered
	if at := nextAttempt(o, a); at.After(last) {
		last = at
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if asked := q.asked[o.Spec.Cause]; asked.After(last) {
		last = asked
	}
	return last.Add(retention)
}

// forget what was remembered of actions that are gone.
func (q *Queue) forget() {
	causes, names := map[string]bool{}, map[string]bool{}
	for _, o := range q.ledger.all() {
		causes[o.Spec.Cause] = true
		names[o.Name] = !over(o)
	}
	now, superseded := q.Clock.Now(), q.superseded()
	q.lock.Lock()
	dropped := q.dropped.all()
	q.lock.Unlock()
	late := slices.DeleteFunc(dropped, func(o *v1alpha1.RTAction) bool { return now.Before(q.needed(o)) && !superseded[o.Name] })
	q.lock.Lock()
	defer q.lock.Unlock()
	for _, o := range late {
		q.dropped.remove(o.Name)
		q.drops++
	}
	for cause := range q.dropped.causes {
		causes[cause] = true
	}
	for cause := range q.asked {
		if !causes[cause] {
			delete(q.asked, cause)
		}
	}
	for name := range q.noted {
		if !names[name] {
			delete(q.noted, name)
		}
	}
}
