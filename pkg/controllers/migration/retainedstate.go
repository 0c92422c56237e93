package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// stateRetention is how long the target keeps the state of an evicted source if the action is over before there is a replacement:
	// that state is nowhere else. The source's node may have died, so that the source does not end, or no controller was running.
	stateRetention = time.Hour
	// annotationKeptUntil is, on a NodeCheckpoint, when that time is over, as RFC 3339.
	annotationKeptUntil = v1alpha1.Group + "/kept-until"
)

// replacementTemplate is the stored template of the pod that replaces a source that has gone, or goes. It is nil if the source stays, or
// if no pod is to be restored from its state.
func (m *migrate) replacementTemplate(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (*corev1.PodTemplate, error) {
	if nc == nil || nc.Spec.Stage != v1alpha1.StageRestore && nc.Spec.Stage != v1alpha1.StageHandOver {
		return nil, nil
	}
	if nc.Spec.Stage == v1alpha1.StageRestore {
		if source, err := m.read(ctx, m.API, task.Object.Spec.Pods[0]); source != nil || err != nil {
			return nil, err
		}
	}
	return m.stored(ctx, task)
}

// continueHandover has a pod restored from the state of a source that has gone, although the action is over. It tells whether neither
// the agents nor the API server hold anything of the migration any longer.
func (l *Leftovers) continueHandover(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, kept *corev1.PodTemplate) (bool, error) {
	m := newMigrate(l.Dependencies)
	task.Progress[progressTemplate] = kept.Name
	until, err := m.keepUntil(ctx, nc)
	if err != nil {
		return false, err
	}
	replacement, err := m.copied(ctx, l.API, task)
	if err != nil {
		return false, err
	}
	if err := m.noteBegun(ctx, nc, replacement); err != nil {
		return false, err
	}
	uncounted, late := m.counted(ctx, nc, replacement), !m.Clock.Now().Before(until)
	left, err := m.left(ctx, task.Object.Spec.Pods[0])
	if err != nil {
		return false, err
	}
	unrecoverable, err := m.unrecoverable(ctx, task, handover{replacement, nc})
	switch {
	case err != nil:
		return false, err
	case replacementRestored(nc, replacement) && uncounted != nil && !late: // its Job would make another one once it is released
		return false, uncounted
	case replacementRestored(nc, replacement):
		return false, m.stage(ctx, nc, v1alpha1.StageRelease)
	case unrecoverable && !late:
		return false, m.keepFor(ctx, nc, 0)
	case late:
		return m.abandonState(ctx, task, nc)
	case nc.Spec.Stage != v1alpha1.StageHandOver:
		return false, m.stage(ctx, nc, v1alpha1.StageHandOver)
	case left:
		return false, nil
	}
	return l.ensureReplacement(ctx, task, nc, kept, replacement)
}

// replacementRestored tells whether a replacement was restored, and is not being deleted.
func replacementRestored(nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod) bool {
	return replacement != nil && replacement.DeletionTimestamp == nil && unrestored(nc, replacement) == ""
}

// unrecoverable tells whether no replacement will ever be restored from the state.
func (m *migrate) unrecoverable(ctx context.Context, task orchestration.Task, l handover) (bool, error) {
	nc, replacement := l.nc, l.replacement
	switch {
	case spoilt(nc) != "":
		return true, nil
	case notStarted(task, l):
		return m.lost(ctx, nc.Spec.TargetNode)
	case replacement == nil || replacement.DeletionTimestamp != nil || finished(replacement):
		return true, nil
	}
	if why, err := m.unmade(ctx, nc, replacement, toRestore(nc)); why != "" || err != nil {
		return why != "", err
	}
	_, gone, err := m.away(ctx, nc, replacement)
	return gone, err
}

// ensureReplacement creates the replacement, if there is none and its owner still wants one. If the API server refuses it, the next
// reconcile retries.
func (l *Leftovers) ensureReplacement(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, kept *corev1.PodTemplate, replacement *corev1.Pod) (bool, error) {
	m := newMigrate(l.Dependencies)
	switch {
	case m.rests(task, nc):
		return false, nil
	case replacement != nil && notStarted(task, handover{replacement, nc}):
		return false, m.clear(ctx, replacement)
	case replacement != nil:
		return false, nil
	}
	replacement = replacementFrom(kept)
	if why, err := m.barred(ctx, task, nc, replacement); why != "" || err != nil {
		return m.abandonStateUnless(ctx, err, task, nc)
	}
	if madeBefore(task, nc) { // a drain, for example, has deleted it
		if shut, _, err := m.away(ctx, nc, replacement); shut != "" || err != nil {
			return false, err
		}
	}
	if err := m.note(ctx, nc, annotationRequested, m.Clock.Now().UTC().Format(time.RFC3339)); err != nil {
		return false, err
	}
	switch err := l.Client.Create(ctx, replacement); {
	case apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return m.abandonState(ctx, task, nc) // another has its name, and would have been found otherwise
	case refused(err): // which may pass
		return false, nil
	case err != nil:
		return false, fmt.Errorf("making pod %s/%s in the place of another: %w", replacement.Namespace, replacement.Name, err)
	}
	return false, nil
}

// abandonState deletes the replacement and what is stored of it, and has the agents remove the state: the owner creates its pod from its
// own template.
func (m *migrate) abandonState(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if gone, err := m.discard(ctx, task); !gone || err != nil {
		return false, err
	}
	if err := m.unstore(ctx, task); err != nil {
		return false, err
	}
	return m.relinquish(ctx, nc)
}

func (m *migrate) abandonStateUnless(ctx context.Context, err error, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if err != nil {
		return false, err
	}
	return m.abandonState(ctx, task, nc)
}

// keptUntil is until when a state is kept, if that is on record.
func keptUntil(nc *v1alpha1.NodeCheckpoint) (time.Time, bool) {
	until, err := time.Parse(time.RFC3339, nc.Annotations[annotationKeptUntil])
	return until, err == nil
}

// keepUntil is until when the state is kept, counted from when the action was found to be over.
func (m *migrate) keepUntil(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (time.Time, error) {
	if until, kept := keptUntil(nc); kept {
		return until, nil
	}
	err := m.keepFor(ctx, nc, stateRetention)
	until, _ := keptUntil(nc)
	return until, err
}

// keepFor records for how long a state is kept from now on. A state that no pod can be restored from is not kept. This stays known once
// the replacement is gone.
func (m *migrate) keepFor(ctx context.Context, nc *v1alpha1.NodeCheckpoint, d time.Duration) error {
	until, after := m.Clock.Now().Add(d), nc.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotationKeptUntil, until.UTC().Format(time.RFC3339))
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(nc, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("noting until when NodeCheckpoint %s is kept: %w", nc.Name, err)
	}
	*nc = *after
	return nil
}

// retainsState reports that the state of a migration whose action is over, or gone, is still kept: the migration is not over before that
// time is. The owner is kept from creating its pod for as long.
func (r *Reconciler) retainsState(ctx context.Context, o *v1alpha1.PodMigration, action string, phase rules.Phase) (bool, error) {
	if o.Status.Strategy != v1alpha1.StrategyCheckpoint || !touched(o) || phase != rules.Failed && phase != rules.Withdrawn {
		return false, nil
	}
	nc := &v1alpha1.NodeCheckpoint{}
	if err := r.API.Get(ctx, types.NamespacedName{Name: action}, nc); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading NodeCheckpoint %s: %w", action, err)
		}
		return false, nil
	}
	m := newMigrate(r.Dependencies)
	task := taskOf(&v1alpha1.RTAction{}, nc)
	if given, err := m.givenUp(ctx, task, nc); given || err != nil {
		return false, err
	}
	message, err := m.keeping(ctx, task, nc)
	if message == "" || err != nil { // once it was kept it is told what became of it when that is decided
		return err == nil && awaited(o) && nc.Spec.Stage == v1alpha1.StageRestore, err
	}
	if until := nc.Annotations[annotationKeptUntil]; until != "" {
		message += ", until " + until
	}
	return true, r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		s.Message = message
		setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionUnknown, v1alpha1.ReasonStateKept, message, r.Clock.Now())
	})
}

// givenUp tells whether the time for which a state was kept is over, and the replacement is being deleted: on a node that no longer
// answers its deletion never ends.
func (m *migrate) givenUp(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if until, kept := keptUntil(nc); !kept || m.Clock.Now().Before(until) {
		return false, nil
	}
	kept, err := m.replacementTemplate(ctx, task, nc)
	if err != nil {
		return false, err
	}
	if kept != nil {
		task.Progress[progressTemplate] = kept.Name
	}
	pod, err := m.copied(ctx, m.API, task)
	return pod != nil && pod.DeletionTimestamp != nil, err
}

// keeping says for which pod the state of a source is kept, whose action is over; empty: for none.
func (m *migrate) keeping(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (string, error) {
	kept, err := m.replacementTemplate(ctx, task, nc)
	switch {
	case err != nil:
		return "", err
	case kept == nil:
		return m.graceMessage(ctx, task, nc)
	}
	return fmt.Sprintf("the source was evicted, and its action is over; its state is kept on node %s for the pod in its place (to have that begin anew, delete NodeCheckpoint %s)", nc.Spec.TargetNode, nc.Name), nil
}

// awaited tells whether it is on record that a state is kept.
func awaited(o *v1alpha1.PodMigration) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
	return c != nil && c.Reason == v1alpha1.ReasonStateKept
}

// retainedStateCondition reports what became of a state that was kept; it is nil if none was.
func (r *Reconciler) retainedStateCondition(ctx context.Context, o *v1alpha1.PodMigration) (*metav1.Condition, error) {
	if !awaited(o) || o.Status.Source == nil {
		return nil, nil
	}
	replacement, err := r.successor(ctx, o)
	switch {
	case err != nil:
		return nil, err
	case replacement != nil:
		return &metav1.Condition{
			Type: v1alpha1.ConditionMigrationState, Status: metav1.ConditionTrue, Reason: string(v1alpha1.StrategyCheckpoint),
			Message: fmt.Sprintf("pod %s/%s goes on with its state on node %s", replacement.Namespace, replacement.Name, replacement.Spec.NodeName),
		}, nil
	}
	return &metav1.Condition{
		Type: v1alpha1.ConditionMigrationState, Status: metav1.ConditionFalse, Reason: ReasonRestoreFailed, Message: "its state was kept, and is given up: no pod has gone on with it",
	}, nil
}
