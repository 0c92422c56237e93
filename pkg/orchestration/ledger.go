package orchestration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
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
	entries map[string]*entry
}

// entry is one action. Its object is never changed, only replaced.
type entry struct {
	object *v1alpha1.RTAction
	// writing is held while it is written; one write at a time.
	writing sync.Mutex
	// doubt: an update was sent of which nobody knows whether it will be stored.
	doubt atomic.Bool
}

func newLedger(c client.Client, r client.Reader, removed func(*v1alpha1.RTAction)) *ledger {
	return &ledger{client: c, reader: r, removed: removed, entries: map[string]*entry{}}
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
	e, ok := l.entries[name]
	if !ok {
		return nil, false
	}
	return e.object, true
}

// all actions, by name.
func (l *ledger) all() []*v1alpha1.RTAction {
	l.lock.RLock()
	defer l.lock.RUnlock()
	out := make([]*v1alpha1.RTAction, 0, len(l.entries))
	for _, e := range l.entries {
		out = append(out, e.object)
	}
	slices.SortFunc(out, func(a, b *v1alpha1.RTAction) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// put takes in what the API server has confirmed.
func (l *ledger) put(o *v1alpha1.RTAction) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if e, ok := l.entries[o.Name]; ok {
		e.object = o
		return
	}
	l.entries[o.Name] = &entry{object: o}
}

func (l *ledger) remove(name string) {
	l.lock.Lock()
	e, ok := l.entries[name]
	delete(l.entries, name)
	l.lock.Unlock()
	if ok {
		l.removed(e.object)
	}
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
	if e.doubt.Load() {
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
			e.doubt.Store(true) // not what is stored, but what is known of it
			return err
		}
		return fmt.Errorf("action %s: %w", name, errMoved)
	case !definite(err):
		e.doubt.Store(true)
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

// refresh reads an action again, unless it is being written.
func (l *ledger) refresh(ctx context.Context, name string) error {
	if e, ok := l.find(name); ok {
		e.writing.Lock()
		defer e.writing.Unlock()
	}
	return l.reload(ctx, name)
}

// doubts are the actions of which it is not known what is stored.
func (l *ledger) doubts() []string {
	l.lock.RLock()
	defer l.lock.RUnlock()
	var out []string
	for name, e := range l.entries {
		if e.doubt.Load() {
			out = append(out, name)
		}
	}
	return out
}
