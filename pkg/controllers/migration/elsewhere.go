package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// targets is how many nodes are tried for one migration, one after another.
const targets = 3

// decided is under what name cores of a target are kept from the decision on until the action keeps them.
func decided(uid types.UID) string { return "decided-" + string(uid) }

// keep keeps the cores that were decided on, so that no other decision counts on them. The caller has the lock.
func (r *Reconciler) keep(uid types.UID, target string, pod *corev1.Pod) error {
	room, veto := r.room(target, pod)
	if veto != "" {
		return fmt.Errorf("keeping cores of node %s: %s", target, veto)
	}
	if err := r.Store.ReserveAll(room.Reservations(decided(uid))); err != nil {
		return err
	}
	r.kept[uid] = true
	return nil
}

// remind restores the reservation of a migration that waits for its turn, in a process that did not decide on it. If the room is gone,
// the action will find that out.
func (r *Reconciler) remind(ctx context.Context, o *v1alpha1.PodMigration) {
	r.choosing.Lock()
	defer r.choosing.Unlock()
	pod := &corev1.Pod{}
	if r.kept[o.UID] || o.Status.Target == nil || r.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.PodName}, pod) != nil {
		return
	}
	refused := &state.RefusedError{}
	if err := r.keep(o.UID, o.Status.Target.Node, pod); err == nil || errors.As(err, &refused) {
		r.kept[o.UID] = true
	}
}

// over has a migration whose target had no room when its turn came go elsewhere, where any node will do, or tells what became of it.
func (r *Reconciler) over(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction) (time.Duration, error) {
	switch unwanted := unwanted(o); {
	case unwanted != "" && adrift(o):
		return 0, r.aborted(ctx, o, ReasonUnwanted, unwanted+"; "+tried(action))
	case unwanted != "" || o.Spec.TargetNode != "" || o.Labels[v1alpha1.LabelMigrationAction] != "" || !displaced(action):
		return 0, r.conclude(ctx, o, action)
	case decidedAfter(o, action): // another process, or another call, has decided on the same node again and submits it
		_, err := r.Actions.Submit(ctx, r.request(ctx, o))
		return again, err
	}
	return r.decideElsewhere(ctx, o, action)
}

// decideElsewhere decides on another target, and has the queue go there, or reports that there is none.
func (r *Reconciler) decideElsewhere(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction) (time.Duration, error) {
	tried, err := r.triedFor(o)
	if err != nil {
		return 0, err
	}
	why := fmt.Sprintf("%d nodes were tried", len(tried))
	if len(tried) < targets {
		q, no, err := r.ask(ctx, o)
		switch {
		case err != nil:
			return 0, err
		case q == nil && no == nil:
			return unready, nil
		case no != nil:
			why = no.message
		default:
			a, err := r.decideBeside(ctx, *q, tried)
			if err != nil {
				r.forget(o.UID)
				return 0, err
			}
			if a.refusal == nil {
				return r.turn(ctx, o, action, *q, a)
			}
			why = a.refusal.message
		}
	}
	last := action.DeepCopy()
	last.Status.Message += "; " + why
	return 0, r.conclude(ctx, o, last)
}

// decideBeside decides on a node other than those that were tried. Where the pod waits for a node to be opened, a tried one is decided on
// again after the queue's rest between attempts: Karpenter opens no other node while that one has room for the pod.
func (r *Reconciler) decideBeside(ctx context.Context, q question, tried []attempt) (answer, error) {
	var all, resting []string
	for _, t := range tried {
		all = append(all, t.node)
		if t.again.IsZero() || r.Clock.Now().Before(t.again) {
			resting = append(resting, t.node)
		}
	}
	q.tried = all
	a, err := r.decide(ctx, q)
	waited := r.Clock.Now().Sub(q.object.CreationTimestamp.Time) // through all attempts
	if err == nil && a.waits != nil && a.waits.reason == ReasonWaitsForNode && len(resting) < len(all) && waited < mayWait(q.object) {
		q.tried = resting
		if b, err := r.decide(ctx, q); err != nil || b.refusal == nil {
			return b, err
		}
		r.forget(q.object.UID) // it is not allowed to go there, and may be to a node that is opened later
	}
	return a, err
}

// decidedAfter tells whether the decision on record is younger than the end of an action.
func decidedAfter(o *v1alpha1.PodMigration, action *v1alpha1.RTAction) bool {
	admitted, ended := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationAdmitted), action.Status.PhaseTime
	return o.Status.Phase == v1alpha1.MigrationPending && admitted != nil && admitted.Status == metav1.ConditionTrue && ended != nil &&
		admitted.LastTransitionTime.After(ended.Time)
}

// displaced tells whether only the target was in the way of an action, and nothing is left of it.
func displaced(action *v1alpha1.RTAction) bool {
	return rules.Phase(action.Status.Phase) == rules.RolledBack && !action.Status.Unwanted && action.Status.Progress[v1alpha1.ProgressElsewhere] != ""
}

// adrift tells whether a migration waits for a limit though it was admitted before: its target would not do, and it has no other one yet.
func adrift(o *v1alpha1.PodMigration) bool {
	return o.Status.Strategy != "" && o.Status.Phase == v1alpha1.MigrationPending && meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.ConditionMigrationAdmitted)
}

// tried says what became of an action whose target would not do.
func tried(action *v1alpha1.RTAction) string {
	return fmt.Sprintf("node %s was tried before: %s", action.Spec.TargetNode, action.Status.Message)
}

// attempt is a node that was the target of an action for a migration, and when the queue takes the next action to that node; zero: never.
type attempt struct {
	node  string
	again time.Time
}

// triedFor are the targets that were tried for a migration, each with its last attempt. A node for which the source stood still is tried
// once: each attempt would cost the pod its time again.
func (r *Reconciler) triedFor(o *v1alpha1.PodMigration) ([]attempt, error) {
	list, err := r.Actions.ForCause(causePrefix + string(o.UID))
	if err != nil {
		return nil, err
	}
	var out []attempt
	for _, action := range slices.Backward(list) {
		if !slices.ContainsFunc(out, func(t attempt) bool { return t.node == action.Spec.TargetNode }) {
			ticket, _ := r.Actions.Get(action.Name)
			if action.Status.Progress[progressStopped] != "" {
				ticket.Again = time.Time{}
			}
			out = append(out, attempt{action.Spec.TargetNode, ticket.Again})
		}
	}
	return out, nil
}

// turn puts another target on record, and has the queue go there.
func (r *Reconciler) turn(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction, q question, a answer) (time.Duration, error) {
	if a.waits != nil {
		return r.await(ctx, o, action, a.waits)
	}
	if err := r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		advance(s, v1alpha1.MigrationPending, metav1.NewMicroTime(r.Clock.Now()))
		r.admitted(s, q, a, ReasonAdmitted)
		s.Message = record.Short(would(q, a)+"; "+tried(action), 4096)
	}); err != nil {
		r.forget(o.UID)
		return 0, err
	}
	r.Recorder.Publish(events.MigrationElsewhere(o, string(o.UID), action.Spec.TargetNode, a.target, action.Status.Message))
	_, err := r.Actions.Submit(ctx, r.request(ctx, o))
	return again, err
}

// await has a migration wait for another target for as long as it may. It counts for no node meanwhile: others that wait for the node
// that it has given up go there, and of two that wait for each other's node one does.
func (r *Reconciler) await(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction, waits *refusal) (time.Duration, error) {
	r.forget(o.UID)
	message := waits.message + "; " + tried(action)
	if o.Status.Phase == v1alpha1.MigrationPending && r.left(o) <= 0 {
		return 0, r.aborted(ctx, o, ReasonWaitedTooLong, r.waited(o, message))
	}
	err := r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		advance(s, v1alpha1.MigrationPending, metav1.NewMicroTime(r.Clock.Now()))
		s.Message = record.Short(message, 4096)
		setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionFalse, waits.reason, waits.message, r.Clock.Now())
	})
	return max(soon, min(again, r.left(o))), err
}
