package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/keymutex"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// ErrNotReady is the error of a queue that has not read its actions yet, or whose process does not lead.
var ErrNotReady = errors.New("the orchestration queue is not ready")

// besides bounds how many requests for different things are stored side by side.
const besides = 256

// Queue is where controllers submit actions. It works once its loops run.
type Queue struct {
	Dependencies
	ledger    *ledger
	gate      *gate
	executors map[rules.Kind]Executor
	listeners []func(*v1alpha1.RTAction)

	// ready: the actions are read, and this queue holds the gate.
	ready atomic.Bool
	// dispatching and running wake the loops.
	dispatching, running trigger

	// submitting keeps two requests for the same, by their keys, from being made two attempts; those for other things do not wait for a write
	// that is not theirs. creating are the names of those that are being stored.
	submitting keymutex.KeyMutex
	creating   sync.Map
	lock       sync.Mutex
	// asked is when a cause was last asked about.
	asked map[string]time.Time
	// noted is what was last told about an action that waits or is under way, and when it was stored.
	noted map[string]note
	// dropped are actions that are no longer stored and still count: users have deleted them. drops is how often that has
	// changed, and archived which of these changes the Lease has.
	dropped         *register
	drops, archived int
	// resume is when the queue may take the gate again after it has lost it.
	resume time.Time
}

// New makes a queue that has read nothing yet.
func New(d Dependencies) (*Queue, error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	d.Options = d.Options.withDefaults()
	q := &Queue{
		Dependencies: d,
		gate: &gate{
			client: d.Client, reader: d.Reader, holder: d.Identity,
			key: d.Lease,
			now: func() metav1.MicroTime { return metav1.MicroTime{Time: d.Clock.Now()} },
		},
		executors:  map[rules.Kind]Executor{},
		submitting: keymutex.NewHashed(besides),
		asked:      map[string]time.Time{},
		noted:      map[string]note{},
		dropped:    newRegister(),
	}
	q.ledger = newLedger(d.Client, d.Reader, q.drop)
	return q, nil
}

// Handle has an executor do the actions of a kind. It is called before the loops start.
func (q *Queue) Handle(kind rules.Kind, e Executor) { q.executors[kind] = e }

// Listen has f called after an action has come into another phase, or waits for something else. It is called before
// the loops start; f must not block.
func (q *Queue) Listen(f func(*v1alpha1.RTAction)) { q.listeners = append(q.listeners, f) }

// Ready is why the queue does not work now; nil when it does. Before, its lists are not complete.
func (q *Queue) Ready() error {
	if !q.ready.Load() {
		return ErrNotReady
	}
	return nil
}

// idle is how long the queue must still leave the gate to the one that has taken it.
func (q *Queue) idle() time.Duration {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.resume.Sub(q.Clock.Now())
}

// takeOver makes this queue the one that acts: it takes the gate, and then every action.
func (q *Queue) takeOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if err := q.gate.take(ctx); err != nil {
		return err
	}
	if err := q.ledger.load(ctx); err != nil {
		return err
	}
	if err := q.restore(ctx); err != nil {
		return err
	}
	q.ready.Store(true)
	for _, o := range q.ledger.all() {
		q.remember(o.Spec.Cause, q.Clock.Now()) // the controller that asked the last leader has had no time to ask here
		if phaseOf(o).Holds() {
			q.running.fire(o.Name)
		}
	}
	return nil
}

// mayAct makes sure that no other queue has taken over. What is done on the strength of it must have been read before.
func (q *Queue) mayAct(ctx context.Context) error {
	if err := q.Ready(); err != nil {
		return err
	}
	err := q.gate.held(ctx)
	switch {
	case errors.Is(err, ErrDeposed):
		q.ready.Store(false)
		q.lock.Lock()
		q.resume = q.Clock.Now().Add(regain)
		q.lock.Unlock()
	case apierrors.IsNotFound(err):
		q.ready.Store(false) // another client has deleted the Lease: take it again
	}
	return err
}

// Submit asks for an action. Asking again for the same is not asking twice: the ticket is that of the first. An
// attempt that came to nothing is followed by another once its rest is over; until then the ticket is its.
func (q *Queue) Submit(ctx context.Context, r Request) (Ticket, error) {
	if err := q.Ready(); err != nil {
		return Ticket{}, err
	}
	if err := r.validate(); err != nil {
		return Ticket{}, fmt.Errorf("submitting an action: %w", err)
	}
	key, tried := r.key(), int32(1)
	q.submitting.LockKey(key)
	defer func() { _ = q.submitting.UnlockKey(key) }() // which never fails
	now := q.Clock.Now()
	asked := now
	q.remember(r.Cause, now)
	if last := q.latest(key); last != nil {
		t := q.ticket(last)
		if !t.Phase.Over() || t.Again.IsZero() || now.Before(t.Again) {
			return t, nil
		}
		tried = tries(last)
		if !KeptByDisruption(last) {
			tried++
		}
		if t.Phase == rules.Expired && last.Spec.Since != nil { // it never had its turn, so its age goes on
			asked = last.Spec.Since.Time
		}
	}
	o, err := q.create(ctx, r.object(key, q.number(r), tried, asked))
	if err != nil {
		return Ticket{}, err
	}
	q.dispatching.fire("")
	return q.ticket(o), nil
}

// create stores a new action, or finds the one that is stored under its name.
func (q *Queue) create(ctx context.Context, o *v1alpha1.RTAction) (*v1alpha1.RTAction, error) {
	q.creating.Store(o.Name, nil)
	defer q.creating.Delete(o.Name)
	err := q.Client.Create(ctx, o)
	switch {
	case apierrors.IsAlreadyExists(err):
		if err := q.ledger.refresh(ctx, o.Name); err != nil {
			return nil, err
		}
		found, ok := q.ledger.get(o.Name)
		if !ok {
			return nil, fmt.Errorf("submitting action %s: %w: it is going away", o.Name, errMoved)
		}
		return found, nil
	case err != nil:
		return nil, fmt.Errorf("submitting action %s: %w", o.Name, err)
	}
	q.ledger.put(o)
	q.tell(nil, o)
	return o, nil
}

// creates tells whether an action is being stored just now.
func (q *Queue) creates(name string) bool {
	_, ok := q.creating.Load(name)
	return ok
}

// latest attempt at what a key stands for; nil for none. One that a user has deleted counts: it was withdrawn.
func (q *Queue) latest(key string) *v1alpha1.RTAction {
	attempts := q.recall(func(r *register) []string { return r.attempts.of(key) })
	if len(attempts) == 0 {
		return nil
	}
	return slices.MaxFunc(attempts, func(a, b *v1alpha1.RTAction) int { return cmp.Compare(a.Spec.Attempt, b.Spec.Attempt) })
}

// recall picks actions, and those that are no longer stored and still count.
func (q *Queue) recall(choose func(*register) []string) []*v1alpha1.RTAction {
	stored := q.ledger.pick(choose)
	q.lock.Lock()
	defer q.lock.Unlock()
	return append(stored, q.dropped.list(choose(q.dropped))...)
}

// Find is the ticket of the last attempt at what a request asks for, which is not submitted by that.
func (q *Queue) Find(r Request) (Ticket, bool) {
	last := q.latest(r.key())
	if last == nil {
		return Ticket{}, false
	}
	return q.ticket(last), true
}

// remember that a cause still matters.
func (q *Queue) remember(cause string, now time.Time) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.asked[cause] = now
}

// Withdraw says that the controller does not want the action any longer: it never begins, or what has begun is undone.
// Withdrawing what is over, or gone, is no error.
func (q *Queue) Withdraw(ctx context.Context, name, why string) error {
	if err := q.Ready(); err != nil {
		return err
	}
	if _, ok := q.ledger.get(name); !ok {
		return nil
	}
	_, err := q.transition(ctx, name, "", func(a rules.Action, now time.Time) rules.Action { return a.Withdraw(why, now) })
	return err
}

// Get is the ticket of an action.
func (q *Queue) Get(name string) (Ticket, bool) {
	o, ok := q.ledger.get(name)
	if !ok {
		return Ticket{}, false
	}
	return q.ticket(o), true
}

// Wake has the executor of a running action look at it now.
func (q *Queue) Wake(name string) { q.running.fire(name) }

// HoldsPod is the action that has a pod, by its UID; empty: none. Any other controller that would touch the pod should wait.
func (q *Queue) HoldsPod(uid types.UID) string {
	return q.ledger.holder(rules.Key{Resource: rules.Pod, Name: string(uid)})
}

// HoldsNode is an action that uses a node; empty: none.
func (q *Queue) HoldsNode(name string) string {
	return q.ledger.holder(rules.Key{Resource: rules.Node, Name: name})
}

// Running are the actions of a kind that run or are being undone, by name. Callers must not change them.
func (q *Queue) Running(kind rules.Kind) []*v1alpha1.RTAction {
	return q.ledger.pick(func(r *register) []string { return r.kinds.of(v1alpha1.ActionKind(kind)) })
}

// WaitingFor are the actions that wait for something, by name. Callers must not change them.
func (q *Queue) WaitingFor(reason string) []*v1alpha1.RTAction {
	return q.ledger.pick(func(r *register) []string { return r.waits.of(reason) })
}

// Awaiting are those, and the last attempts that expired while they waited for it, after which another is to come as a
// controller asks about their cause. Callers must not change them.
func (q *Queue) Awaiting(reason string) []*v1alpha1.RTAction {
	now := q.Clock.Now()
	resting := q.ledger.pick(func(r *register) []string { return r.expired.of(reason) })
	return append(q.WaitingFor(reason), slices.DeleteFunc(resting, func(o *v1alpha1.RTAction) bool {
		last := q.latest(o.Labels[v1alpha1.LabelActionKey])
		return last == nil || last.Name != o.Name || !q.matters(o.Spec.Cause, now)
	})...)
}

// ticket of an action, with what the dispatcher said last.
func (q *Queue) ticket(o *v1alpha1.RTAction) Ticket {
	a, _ := record.Read(o) // what is wrong with it is in its message
	t := Ticket{Name: o.Name, Phase: a.Phase, Attempt: tries(o)}
	t.WaitingFor, t.Message = q.said(o)
	if a.Phase.Over() {
		t.WaitingFor = "" // of one that has expired, what it last waited for
		t.Again = nextAttempt(o, a)
	}
	return t
}

// transition stores what f makes of an action, and tells the listeners.
func (q *Queue) transition(ctx context.Context, name, version string, f func(rules.Action, time.Time) rules.Action) (*v1alpha1.RTAction, error) {
	return q.change(ctx, name, version, func(o *v1alpha1.RTAction) {
		before, _ := record.Read(o)
		if after := f(before, q.Clock.Now()); after.Phase != before.Phase || after.Unwanted != before.Unwanted || after.Message != before.Message {
			record.Write(after, o)
		}
	})
}

// change stores what f makes of the record of an action.
func (q *Queue) change(ctx context.Context, name, version string, f func(*v1alpha1.RTAction)) (*v1alpha1.RTAction, error) {
	before, after, err := q.ledger.change(ctx, name, version, f)
	if err != nil {
		return nil, err
	}
	if before != after {
		q.tell(before, after)
	}
	return after, nil
}

func phaseOf(o *v1alpha1.RTAction) rules.Phase {
	if o.Status.Phase == "" {
		return rules.Waiting
	}
	return rules.Phase(o.Status.Phase)
}

func over(o *v1alpha1.RTAction) bool { return phaseOf(o).Over() }
