package orchestration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// settles is how often an action is read and written when others write it at the same time.
const settles = 5

// settle reads an action and writes it with a higher term. After that the API server stores no update of an earlier version,
// whichever process sent it and however late it comes. The caller holds the entry.
func (l *ledger) settle(ctx context.Context, e *entry, name string) error {
	return l.settleFrom(ctx, e, name, nil)
}

// settleFrom does so from a version that has been read, if there is one.
func (l *ledger) settleFrom(ctx context.Context, e *entry, name string, o *v1alpha1.RTAction) error {
	var err error
	for range settles {
		if o == nil {
			o = &v1alpha1.RTAction{}
			err = l.reader.Get(ctx, types.NamespacedName{Name: name}, o)
		}
		if err == nil {
			err = l.raise(ctx, o)
		}
		switch {
		case err == nil:
			l.trust(e)
			return nil
		case apierrors.IsNotFound(err):
			l.trust(e)
			l.remove(name)
			return nil
		case !apierrors.IsConflict(err):
			l.doubt(e, name)
			return fmt.Errorf("taking over action %s: %w", name, err)
		}
		o, err = nil, nil
	}
	return fmt.Errorf("taking over action %s: others write it all the time", name)
}

// raise writes an action with a higher term.
func (l *ledger) raise(ctx context.Context, o *v1alpha1.RTAction) error {
	o.Status.Term++
	if err := l.client.Status().Update(ctx, o); err != nil {
		return err
	}
	l.put(o)
	return nil
}

// clarify settles every action that is in doubt. One that the API server does not let the queue write stays in doubt.
func (l *ledger) clarify(ctx context.Context) error {
	for _, name := range l.doubts() {
		if err := l.resolve(ctx, name); err != nil && !unwritable(err) {
			return err
		}
	}
	return nil
}

// resolve settles an action if it is in doubt.
func (l *ledger) resolve(ctx context.Context, name string) error {
	e, ok := l.find(name)
	if !ok {
		return nil
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	if !l.inDoubt(e) {
		return nil
	}
	return l.settle(ctx, e, name)
}

// load reads every action, and writes those that are not over: what an earlier leader still writes about them is refused from
// then on. One that the API server does not let the queue write is in doubt.
func (l *ledger) load(ctx context.Context) error {
	list := &v1alpha1.RTActionList{}
	if err := l.reader.List(ctx, list); err != nil {
		return fmt.Errorf("listing actions: %w", err)
	}
	l.forget()
	for i := range list.Items {
		o := &list.Items[i]
		l.put(o)
		if over(o) {
			continue
		}
		e, _ := l.find(o.Name)
		e.writing.Lock()
		err := l.settleFrom(ctx, e, o.Name, o.DeepCopy())
		e.writing.Unlock()
		if err != nil && !unwritable(err) {
			return err
		}
	}
	return nil
}
