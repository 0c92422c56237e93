package orchestration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// deletedKey is the annotation of the Lease that has the deleted actions.
	deletedKey = v1alpha1.Group + "/deleted-actions"
	// deletedMost is how many bytes of them are stored: annotations take 256 KiB, and the Lease is read with every step.
	deletedMost = 64 << 10
)

// archived are the actions that users have deleted and that still count, as stored on the Lease: the next leader, too, must
// know that they were withdrawn. What cannot be understood counts as nothing.
func (g *gate) archived(ctx context.Context) ([]*v1alpha1.RTAction, error) {
	lease := &coordinationv1.Lease{}
	if err := g.reader.Get(ctx, g.key, lease); err != nil {
		return nil, fmt.Errorf("reading Lease %s: %w", g.key, err)
	}
	text := lease.Annotations[deletedKey]
	if text == "" {
		return nil, nil
	}
	var out []*v1alpha1.RTAction
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		log.FromContext(ctx).Error(err, "reading deleted actions; they count as forgotten", "lease", g.key)
		return nil, nil
	}
	return slices.DeleteFunc(out, func(o *v1alpha1.RTAction) bool { return o == nil || o.Name == "" || !over(o) }), nil
}

// archive stores actions in place of those that are stored, while this queue holds the Lease.
func (g *gate) archive(ctx context.Context, actions []*v1alpha1.RTAction) error {
	text, err := encode(actions)
	if err != nil {
		return err
	}
	lease, err := g.own(ctx)
	if err != nil || lease.Annotations[deletedKey] == text {
		return err
	}
	if metav1.SetMetaDataAnnotation(&lease.ObjectMeta, deletedKey, text); text == "" {
		delete(lease.Annotations, deletedKey)
	}
	if err := g.client.Update(ctx, lease); err != nil {
		return fmt.Errorf("storing deleted actions on Lease %s: %w", g.key, err)
	}
	return nil
}

// encode actions, the last first, as far as they fit.
func encode(actions []*v1alpha1.RTAction) (string, error) {
	if len(actions) == 0 {
		return "", nil
	}
	size := 2
	out := make([]json.RawMessage, 0, len(actions))
	for _, o := range actions {
		text, err := json.Marshal(essence(o))
		if err != nil {
			return "", fmt.Errorf("encoding action %s: %w", o.Name, err)
		}
		if size += len(text) + 1; size > deletedMost {
			break
		}
		out = append(out, text)
	}
	text, err := json.Marshal(out)
	return string(text), err
}

// essence is what still counts of an action that is over.
func essence(o *v1alpha1.RTAction) *v1alpha1.RTAction {
	out := &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: map[string]string{v1alpha1.LabelActionKey: o.Labels[v1alpha1.LabelActionKey]}},
		Spec:       *o.Spec.DeepCopy(),
	}
	out.Spec.Message = ""
	out.Status.Phase, out.Status.PhaseTime, out.Status.WaitingFor = o.Status.Phase, o.Status.PhaseTime, o.Status.WaitingFor
	out.Status.Message = record.Short(o.Status.Message, 256)
	return out
}

// drop remembers an action that is no longer stored, or will soon be no longer. Where the action was not over, another client
// has removed its finalizer: the queue does nothing about it any longer.
func (q *Queue) drop(last *v1alpha1.RTAction) {
	if !over(last) {
		last = last.DeepCopy()
		a, _ := record.Read(last) // for its phase
		a.Phase, a.Entered, a.Message = rules.Withdrawn, q.Clock.Now(), "It was deleted by force"
		record.Write(a, last)
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	q.dropped.put(last)
	q.drops++
}

// restore remembers the actions that other processes have archived.
func (q *Queue) restore(ctx context.Context) error {
	found, err := q.gate.archived(ctx)
	if err != nil {
		return err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	for _, o := range found {
		if _, stored := q.ledger.get(o.Name); !stored {
			q.dropped.put(o)
		}
	}
	q.drops++
	return nil
}

// archive stores what was dropped, if that has changed. Only the dispatcher calls it.
func (q *Queue) archive(ctx context.Context) error {
	q.lock.Lock()
	dropped, drops, archived := q.dropped.all(), q.drops, q.archived
	q.lock.Unlock()
	if drops == archived {
		return nil
	}
	slices.SortStableFunc(dropped, func(a, b *v1alpha1.RTAction) int { return entered(b).Compare(entered(a)) })
	if err := q.gate.archive(ctx, dropped); err != nil {
		return err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	q.archived = drops
	return nil
}

// entered is when an action came into its phase.
func entered(o *v1alpha1.RTAction) time.Time {
	a, _ := record.Read(o) // times are all that counts
	return a.Entered
}
