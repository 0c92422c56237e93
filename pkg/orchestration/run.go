package orchestration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// workers of the runner: executors ask and return, they do not sit and wait.
	workers = 10
	// unseen is how long a watch may take to show a new action.
	unseen = 5 * time.Second
	// unready is when to ask again whether the queue is ready.
	unready = 250 * time.Millisecond
)

// runner has executors do the actions that run, or undo them.
type runner struct{ *Queue }

// Register implements controller.Controller.
func (r *runner) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("orchestration.run").
		For(&v1alpha1.RTAction{}).
		WatchesRawSource(r.running.source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second),
		}).
		Complete(r)
}

// Reconcile takes a step of one action.
func (r *runner) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.ready.Load() {
		return reconcile.Result{RequeueAfter: unready}, nil
	}
	var wait time.Duration
	err := r.look(ctx, request.Name)
	if err == nil {
		wait, err = r.run(ctx, request.Name)
	}
	if errors.Is(err, errMoved) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	if err != nil {
		return reconcile.Result{}, err // it comes again by the rate limiter
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// look compares the ledger with what a watch shows, which may be old: only where they differ in what others may do to
// an action, the API server is asked.
func (q *Queue) look(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	shown := &v1alpha1.RTAction{}
	err := q.Client.Get(ctx, client.ObjectKey{Name: name}, shown)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading action %s: %w", name, err)
	}
	known, ok := q.ledger.get(name)
	switch {
	case !ok && err != nil, ok && err != nil && q.Clock.Now().Sub(known.CreationTimestamp.Time) < unseen:
		return nil // it is not there; or the watch does not show it yet
	case !ok && q.creates(name):
		return nil // the watch is ahead of the answer
	case ok && err == nil && known.DeletionTimestamp.IsZero() == shown.DeletionTimestamp.IsZero():
		return nil
	}
	if err := q.ledger.refresh(ctx, name); err != nil {
		return err
	}
	q.dispatching.fire("")
	if o, ok := q.ledger.get(name); ok {
		return q.review(ctx, o)
	}
	return nil
}

// run takes a step of an action that runs or is undone, and stores what came of it.
func (q *Queue) run(ctx context.Context, name string) (time.Duration, error) {
	if err := q.ledger.resolve(ctx, name); err != nil {
		return 0, err
	}
	o, ok := q.ledger.get(name)
	if !ok || !phaseOf(o).Holds() {
		return 0, nil
	}
	a, err := record.Read(o)
	if err != nil {
		return 0, fmt.Errorf("reading action %s: %w", name, err)
	}
	if deadline, ok := a.Deadline(); ok && !q.Clock.Now().Before(deadline) {
		q.dispatching.fire("") // it ends there
		return poll, nil
	}
	if err := q.mayAct(ctx); err != nil {
		return 0, err
	}
	known := q.progress(o)
	task := Task{Action: a, Object: o.DeepCopy(), Progress: maps.Clone(known)}
	if task.Progress == nil {
		task.Progress = map[string]string{}
	}
	result, failed := q.step(ctx, task)
	after, err := q.report(ctx, task, result, failed)
	if err != nil {
		return 0, err
	}
	if !phaseOf(after).Holds() {
		q.dispatching.fire("")
		return 0, nil
	}
	if phaseOf(after) != a.Phase || failed == nil && !maps.Equal(known, task.Progress) { // what is not stored does not wake the runner
		return time.Millisecond, nil
	}
	return poll, failed
}

// step has the executor take one.
func (q *Queue) step(ctx context.Context, task Task) (rules.Result, error) {
	executor, ok := q.executors[task.Action.Kind]
	if !ok {
		return rules.Result{}, fmt.Errorf("nothing here does actions of kind %s", task.Action.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return executor.Step(ctx, task)
}

// report stores the result of a step, if the action is still as the step found it. If not, the step is taken again on
// what the action is now: an executor that was late is asked to undo what was done by then.
func (q *Queue) report(ctx context.Context, task Task, r rules.Result, failed error) (*v1alpha1.RTAction, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return q.change(ctx, task.Action.ID, task.Object.ResourceVersion, func(o *v1alpha1.RTAction) {
		before := o.Status.DeepCopy()
		o.Status.Progress = task.Progress
		switch passes := q.passes(o.Name, failed); {
		case failed == nil:
			o.Status.LastError = ""
			record.Spend(o, r.Spent)
			record.Write(task.Action.Report(r, q.Clock.Now()), o)
		case !passes:
			o.Status.LastError = record.Short(failed.Error(), 1024)
			return
		}
		q.debounce(before, o, r.Later)
	})
}

// passes tells whether an error is only that another client has written what a step would have written. The next step mostly
// succeeds then. passes remembers for how long that goes on: an error that stays is told.
func (q *Queue) passes(name string, failed error) bool {
	now := q.Clock.Now()
	q.lock.Lock()
	defer q.lock.Unlock()
	n := q.noted[name]
	switch {
	case !apierrors.IsConflict(failed):
		n.conflicts = time.Time{}
	case n.conflicts.IsZero():
		n.conflicts = now
	}
	q.noted[name] = n
	return !n.conflicts.IsZero() && now.Sub(n.conflicts) < seldom
}

// progress of an action: what is stored of it, and what is only known here.
func (q *Queue) progress(o *v1alpha1.RTAction) map[string]string {
	q.lock.Lock()
	defer q.lock.Unlock()
	if n := q.noted[o.Name]; n.progress != nil && n.version == o.ResourceVersion {
		return n.progress
	}
	return o.Status.Progress
}

// debounce puts off storing what only says in other words what an action that is under way waits for: such messages change
// with every step, and no decision depends on them. Tickets have the last one, and it is stored when the action ends for being
// late. The same goes for progress that may be stored later.
func (q *Queue) debounce(before *v1alpha1.RTActionStatus, o *v1alpha1.RTAction, later []string) {
	said, now := o.Status.Message, q.Clock.Now()
	same := o.Status.DeepCopy()
	same.Message, same.Progress = before.Message, without(same.Progress, before.Progress, later)
	q.lock.Lock()
	defer q.lock.Unlock()
	n := q.noted[o.Name]
	n.progress = nil
	switch {
	case !equality.Semantic.DeepEqual(same, before) || said != before.Message && now.Sub(n.written) >= seldom:
		n.written = now
	default:
		n.progress, n.version = o.Status.Progress, o.ResourceVersion
		o.Status.Message, o.Status.Progress = before.Message, before.Progress
	}
	n.phase, n.reason, n.message = phaseOf(o), "", said
	q.noted[o.Name] = n
}

// without is progress as if some entries were as they were before.
func without(progress, before map[string]string, entries []string) map[string]string {
	out := maps.Clone(progress)
	for _, key := range entries {
		delete(out, key)
		if was, ok := before[key]; ok {
			out[key] = was
		}
	}
	return out
}

// said is what was last said about an action in its phase, stored or not.
func (q *Queue) said(o *v1alpha1.RTAction) (reason, message string) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if n, ok := q.noted[o.Name]; ok && n.phase == phaseOf(o) {
		return n.reason, n.message
	}
	return o.Status.WaitingFor, o.Status.Message
}
