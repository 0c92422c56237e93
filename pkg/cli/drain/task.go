package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/move"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
)

// evictionTimeout bounds one request for an eviction. The client waits where the API server asks it to, which is told then.
const evictionTimeout = 5 * time.Second

// task is a pod on its way.
type task struct {
	item
	// migration that moves it, once there is one; mine: the drain has asked for it.
	migration types.NamespacedName
	mine      bool
	// asked: its eviction was granted.
	asked bool
	// over: nothing more is done; moved: it runs elsewhere; failed: it is still there, and why.
	over, moved bool
	failed      string
	said        string
}

// advance takes the next step for a pod.
func (d *Drain) advance(ctx context.Context, t *task) error {
	there, err := d.there(ctx, t.pod)
	if err != nil {
		return err
	}
	if t.way == migrates {
		return d.migrate(ctx, t, there)
	}
	return d.evict(ctx, t, there)
}

// there tells whether the pod, and not another one of its name, is still on the node.
func (d *Drain) there(ctx context.Context, p *corev1.Pod) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := &corev1.Pod{}
	err := d.Client.Get(ctx, client.ObjectKeyFromObject(p), now)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading pod %s: %w", name(p), err)
	}
	return now.UID == p.UID, nil
}

// migrate has the pod moved, or follows who moves it already. What cannot be moved is evicted, but for pods of McKubes, which
// are left where they are unless that was asked for.
func (d *Drain) migrate(ctx context.Context, t *task, there bool) error {
	if t.migration == (types.NamespacedName{}) {
		return d.begin(ctx, t, there)
	}
	m, err := move.Get(ctx, d.Client, t.migration)
	switch {
	case err != nil:
		return err
	case m != nil:
		t.tell(d, move.Words(m))
		if !m.Status.Phase.Over() {
			return nil
		}
		if move.Moved(m) || m.Status.Phase == v1alpha1.MigrationSucceededWithoutState {
			t.over, t.moved = true, true
			fmt.Fprintln(d.Out, move.Summary(m))
			return nil
		}
	}
	switch {
	case !there:
		t.over = true
	case t.governed && !d.EvictRefused:
		t.over, t.failed = true, outcome(m)+"; a pod of a McKube is evicted only with --evict-refused"
		t.tell(d, "stays: "+t.failed)
	default:
		t.way = evicts
		t.tell(d, "is evicted, as its migration came to nothing: "+outcome(m))
	}
	return nil
}

// outcome of a migration in words.
func outcome(m *v1alpha1.PodMigration) string {
	if m == nil {
		return "somebody has deleted its PodMigration"
	}
	return move.Words(m)
}

// begin asks for the migration, unless there is one.
func (d *Drain) begin(ctx context.Context, t *task, there bool) error {
	if !there {
		t.over = true
		return nil
	}
	list := &v1alpha1.PodMigrationList{}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := d.Client.List(bounded, list, client.InNamespace(t.pod.Namespace)); err != nil {
		return fmt.Errorf("listing PodMigrations: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		same := m.Spec.PodName == t.pod.Name && (m.Spec.PodUID == "" || m.Spec.PodUID == t.pod.UID)
		if same && !m.Spec.DryRun && !m.Status.Phase.Over() {
			t.migration = client.ObjectKeyFromObject(m)
			t.tell(d, "migrates already, by PodMigration "+m.Name)
			return nil
		}
	}
	m, err := move.Create(ctx, d.Client, move.Request{
		Namespace: t.pod.Namespace, Pod: t.pod.Name, UID: t.pod.UID, Strategy: d.Strategy, Trigger: v1alpha1.TriggerDrain,
		Reason: "node " + d.Node + " is drained",
	})
	if err != nil {
		return err
	}
	t.migration, t.mine = client.ObjectKeyFromObject(m), true
	t.tell(d, "is to migrate, by PodMigration "+m.Name)
	return nil
}

// evict asks the API server to evict the pod, again and again while a budget forbids it, and waits until the pod is gone.
func (d *Drain) evict(ctx context.Context, t *task, there bool) error {
	if !there {
		t.over = true
		t.tell(d, "is gone")
		return nil
	}
	if t.asked || t.pod.DeletionTimestamp != nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	answer, err := eviction.Ask(bounded, d.Client, t.pod)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		t.tell(d, "may not be evicted yet: the API server asks to wait")
	case err != nil:
		return err
	case answer.Verdict == eviction.Never:
		t.over, t.failed = true, "it may not be evicted: "+answer.Why
		t.tell(d, "stays: "+t.failed)
	case answer.Verdict == eviction.Later:
		t.tell(d, "may not be evicted yet: "+answer.Why)
	case answer.Verdict == eviction.Evicted:
		t.asked = true
		t.tell(d, "is evicted")
	}
	return nil
}

// tell says what is new about a pod.
func (t *task) tell(d *Drain, what string) {
	if t.said != what {
		t.said = what
		d.say(t.pod, what)
	}
}
