package orchestration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// errMoved is the error of a change that was decided on a version that is no longer the last.
var errMoved = errors.New("the action has changed meanwhile")

// ledger has every action as the API server last confirmed it.
type ledger struct {
	client client.Client
	reader client.Reader
	// removed is told of actions that are no longer stored.
	removed func(last *v1alpha1.RTAction)

	lock    sync.RWMutex
	actions *register
	entries map[string]*entry
	// doubtful are the names of entries of which an update was sent that the queue does not know to be stored.
	doubtful map[*entry]string
}

// entry is what is known about writing an action.
type entry struct {
	// writing is held while it is written; one write at a time.
	writing sync.Mutex
}

func newLedger(c client.Client, r client.Reader, removed func(*v1alpha1.RTAction)) *ledger {
	l := &ledger{client: c, reader: r, removed: removed}
	l.forget()
	return l
}

// forget everything.
func (l *ledger) forget() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.actions, l.entries, l.doubtful = newRegister(), map[string]*entry{}, map[*entry]string{}
}

func (l *ledger) find(name string) (*entry, bool) {
	l.lock.RLock()
	defer l.lock.RUnlock()
	e, ok := l.entries[name]
	return e, ok
}

// get is the action of a name.
func (l *ledger) get(name string) (*v1alpha1.RTAction, bool) {
	l.lock.RLock()
	defer l.lock.RUnlock()
	o, ok := l.actions.objects[name]
	return o, ok
}

// all actions, by name.
func (l *ledger) all() []*v1alpha1.RTAction {
	return l.pick(func(r *register) []string { return r.names })
}

// pick lists the actions whose names are chosen.
func (l *ledger) pick(choose func(*register) []string) []*v1alpha1.RTAction {
	l.lock.RLock()
	defer l.lock.RUnlock()
	return l.actions.list(choose(l.actions))
}

// holder is the first of the actions that have something; empty: none has.
func (l *ledger) holder(k rules.Key) string {
	l.lock.RLock()
	defer l.lock.RUnlock()
	return l.actions.holders.first(k)
}

// put takes in what the API server has confirmed.
func (l *ledger) put(o *v1alpha1.RTAction) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.actions.put(o)
	if _, ok := l.entries[o.Name]; !ok {
		l.entries[o.Name] = &entry{}
	}
}

func (l *ledger) remove(name string) {
	l.lock.Lock()
	o, ok := l.actions.remove(name)
	delete(l.doubtful, l.entries[name])
	delete(l.entries, name)
	l.lock.Unlock()
	if ok {
		l.removed(o)
	}
}

// doubt what is stored of an action.
func (l *ledger) doubt(e *entry, name string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.doubtful[e] = name
}

// trust what is known.
func (l *ledger) trust(e *entry) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.doubtful, e)
}

func (l *ledger) inDoubt(e *entry) bool {
	l.lock.RLock()
	defer l.lock.RUnlock()
	_, ok := l.doubtful[e]
	return ok
}

// change stores what f makes of the status of an action, and only then takes it into the ledger. With a version, the
// action must still be that one.
func (l *ledger) change(ctx context.Context, name, version string, f func(*v1alpha1.RTAction)) (before, after *v1alpha1.RTAction, err error) {
	e, ok := l.find(name)
	if !ok {
		return nil, nil, fmt.Errorf("action %s: %w: it is gone", name, errMoved)
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	if l.inDoubt(e) {
		if err := l.settle(ctx, e, name); err != nil {
			return nil, nil, err
		}
	}
	before, ok = l.get(name)
	if !ok || version != "" && before.ResourceVersion != version {
		return nil, nil, fmt.Errorf("action %s: %w", name, errMoved)
	}
	after = before.DeepCopy()
	f(after)
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return before, before, nil
	}
	if err := l.client.Status().Update(ctx, after); err != nil {
		return nil, nil, l.refused(ctx, e, name, err)
	}
	l.put(after)
	return before, after, nil
}

// refused finds out what became of an update that has returned an error.
func (l *ledger) refused(ctx context.Context, e *entry, name string, err error) error {
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		if err := l.reload(ctx, name); err != nil {
			l.doubt(e, name) // not what is stored, but what is known of it
			return err
		}
		return fmt.Errorf("action %s: %w", name, errMoved)
	case !definite(err):
		l.doubt(e, name)
	}
	return fmt.Errorf("writing action %s: %w", name, err)
}

// definite tells whether the API server has said that it did not store an update. Anything else may still be stored,
// even later.
func definite(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}

// unwritable tells whether the API server refuses to store an action, which says nothing about others: a policy forbids it, or
// its record is not valid any longer.
func unwritable(err error) bool {
	return definite(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err)
}

// reload reads an action again. The caller is the one that writes it.
func (l *ledger) reload(ctx context.Context, name string) error {
	o := &v1alpha1.RTAction{}
	err := l.reader.Get(ctx, types.NamespacedName{Name: name}, o)
	switch {
	case apierrors.IsNotFound(err):
		l.remove(name)
	case err != nil:
		return fmt.Errorf("reading action %s: %w", name, err)
	default:
		l.put(o)
	}
	return nil
}

// advance takes in what the API server has made of an action by another way than its status, if the version that this was made of is
// still the last that is known.
func (l *ledger) advance(from, to *v1alpha1.RTAction) bool {
	e, ok := l.find(from.Name)
	if !ok {
		return false
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	known, ok := l.get(from.Name)
	if !ok || known.ResourceVersion != from.ResourceVersion || l.inDoubt(e) {
		return false
	}
	l.put(to)
	return true
}

// refresh reads an action again, unless it is being written.
func (l *ledger) refresh(ctx context.Context, name string) error {
	if e, ok := l.find(name); ok {
		e.writing.Lock()
		defer e.writing.Unlock()
	}
	return l.reload(ctx, name)
}

// doubted tells whether it is not known what is stored of an action.
func (l *ledger) doubted(name string) bool {
	e, ok := l.find(name)
	return ok && l.inDoubt(e)
}

// doubts are the actions of which it is not known what is stored.
func (l *ledger) doubts() []string {
	l.lock.RLock()
	defer l.lock.RUnlock()
	return slices.Sorted(maps.Values(l.doubtful))
}
