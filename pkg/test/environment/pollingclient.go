package environment

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// answerLife bounds how long an answer is given again, so that a fault of a watch does not keep a spec from seeing what it waits for.
const answerLife = 2 * time.Second

// answers are what the API server has said to a spec's reads. A spec that waits repeats the same reads five times a second. It gets the answer before
// again while the record's watch of this kind tells of no change, nothing was written through the client, and no program was run. An answer can be
// older than the API server by what the watch lags, as the record is.
type answers struct {
	mu      sync.Mutex
	record  changeCounter // nil while no spec runs
	writes  int           // through the client, or by a program
	answers map[string]answer
}

type answer struct {
	object  runtime.Object
	err     error
	changes int // of the kind, before the question
	at      time.Time
}

// changeCounter is what reads need of a record (history.Recorder).
type changeCounter interface {
	Changes(kind schema.GroupVersionKind) (int, bool)
}

// client wraps a client so that repeated reads get the answers before.
func (a *answers) client(direct client.WithWatch) client.WithWatch {
	return interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			ask := func() error { return c.Get(ctx, key, o, options...) }
			if len(options) > 0 {
				return ask()
			}
			return a.read(c, o, key.String(), ask)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			ask := func() error { return c.List(ctx, list, options...) }
			all := client.ListOptions{}
			if all.ApplyOptions(options); all.Raw != nil {
				return ask()
			}
			return a.read(c, list, fmt.Sprintf("%q %v %v %d %q", all.Namespace, all.LabelSelector, all.FieldSelector, all.Limit, all.Continue), ask)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			defer a.forget()
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			defer a.forget()
			return c.Update(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			defer a.forget()
			return c.Patch(ctx, o, patch, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			defer a.forget()
			return c.Apply(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			defer a.forget()
			return c.Delete(ctx, o, options...)
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteAllOfOption) error {
			defer a.forget()
			return c.DeleteAllOf(ctx, o, options...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, options ...client.SubResourceCreateOption) error {
			defer a.forget()
			return c.SubResource(name).Create(ctx, o, sub, options...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
			defer a.forget()
			return c.SubResource(name).Update(ctx, o, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			defer a.forget()
			return c.SubResource(name).Patch(ctx, o, patch, options...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			defer a.forget()
			return c.SubResource(name).Apply(ctx, o, options...)
		},
	})
}

// follow has reads answered again while this record tells of no change.
func (a *answers) follow(record changeCounter) {
	a.forget()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record = record
}

// forget has every read ask the API server.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes++
	a.answers = map[string]answer{}
}

// read puts the answer to a question into o.
func (a *answers) read(c client.Client, o runtime.Object, question string, ask func() error) error {
	question = fmt.Sprintf("%T %s", o, question)
	kind, err := history.KindOf(c, o)
	if err != nil {
		return err
	}
	a.mu.Lock()
	record, writes, before := a.record, a.writes, a.answers[question]
	a.mu.Unlock()
	if record == nil {
		return ask()
	}
	changes, watched := record.Changes(kind)
	if !watched {
		return ask()
	}
	if before.object != nil && before.changes == changes && time.Since(before.at) < answerLife {
		if before.err == nil {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(before.object.DeepCopyObject()).Elem())
		}
		return before.err
	}
	at := time.Now()
	err = ask()
	if err == nil || apierrors.IsNotFound(err) {
		a.keep(question, answer{object: o.DeepCopyObject(), err: err, changes: changes, at: at}, writes)
	}
	return err
}

// keep keeps an answer, unless something was written since the question.
func (a *answers) keep(question string, said answer, writes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes == writes {
		a.answers[question] = said
	}
}
