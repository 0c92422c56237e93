package migration

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// unguarded is how long the API server may let the owner create pods before the migration is refused; it may have just been started.
	// undecided is how long the eviction of a stopped source may be refused before the source runs on. unwelcome is how long the
	// replacement may be refused before its state is abandoned: the API server accepted it in a dry run before, so the refusal may be
	// withdrawn soon.
	unguarded = 60 * time.Second
	undecided = 10 * time.Second
	unwelcome = 30 * time.Second
)

// handover is the replacement of a stopped source and its NodeCheckpoint. Either is nil if it does not exist.
type handover struct {
	replacement *corev1.Pod
	nc          *v1alpha1.NodeCheckpoint
}

// needsHandover tells whether a pod's owner tolerates no copy beside it, and adopts a replacement that is created after it. A
// StatefulSet's pod has a name, and a Job counts its pods.
func needsHandover(by *metav1.OwnerReference) bool {
	return isJob(by) || by != nil && by.Kind == "StatefulSet" && by.APIVersion == appsv1.SchemeGroupVersion.String()
}

// replacementOf is the pod that replaces the source, with its name and its owner.
func replacementOf(task orchestration.Task, source *corev1.Pod) *corev1.Pod {
	out := ofPod(task, source)
	out.Name = source.Name
	by := *metav1.GetControllerOf(source)
	if isJob(&by) { // by its finalizer it would not be told of a source that has ended: the Job has counted that, and taken it off
		out.Annotations[annotationUncounted] = "true"
	}
	by.BlockOwnerDeletion = nil // some clusters let only those set it who may finalize the owner
	out.OwnerReferences = []metav1.OwnerReference{by}
	return out
}

// since is for how long something has been so that is noted now, if it is not yet.
func (m *migrate) since(task orchestration.Task, entry string) time.Duration {
	at, err := time.Parse(time.RFC3339Nano, task.Progress[entry])
	if err != nil {
		at = m.Clock.Now()
		task.Progress[entry] = at.UTC().Format(time.RFC3339Nano)
	}
	return m.Clock.Now().Sub(at)
}

// storeReplacement stores the replacement's template: soon the source is gone, and the controller cannot read it from there any longer.
func (m *migrate) storeReplacement(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	replacement := replacementOf(task, source)
	if veto := madeOf(nc, &replacement.Spec); veto != "" {
		return rules.Result{Undo: true, Message: veto}, nil
	}
	v1alpha1.Pin(replacement, task.Object.Spec.TargetNode)
	tolerateCordon(&replacement.Spec)
	if veto, err := m.storeTemplate(ctx, task, replacement); veto != "" || err != nil {
		return rules.Result{Undo: veto != "", Message: veto}, err
	}
	if _, err := m.prepare(ctx, task, source); err != nil {
		return rules.Result{}, err
	}
	if err := m.stage(ctx, nc, v1alpha1.StageRestore); err != nil { // once the source is evicted its state is on the target only, however long no controller is running
		return rules.Result{}, err
	}
	task.Progress[progressTemplate] = ownName(task)
	return rules.Result{Message: "the target has the pod's state; about to evict the source, which is stopped"}, nil
}

// tolerateCordon lets a pod go to its node although that is cordoned meanwhile: the pod's state is nowhere else.
func tolerateCordon(spec *corev1.PodSpec) {
	cordoned := corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	if !slices.Contains(spec.Tolerations, cordoned) {
		spec.Tolerations = append(spec.Tolerations, cordoned)
	}
}

// handOver evicts the stopped source, and has a pod of the same name restored from its state. Up to the source's eviction everything can
// be rolled back. If the state is lost after that, the owner recreates the pod.
func (m *migrate) handOver(ctx context.Context, task orchestration.Task, source *corev1.Pod, l handover) (rules.Result, error) {
	switch cut := task.Progress[progressCut] != ""; {
	case task.Progress[progressLost] != "":
		return m.anew(ctx, task, l.nc)
	case cut:
		return m.completeHandover(ctx, task, l)
	case source == nil: // a process that died, another controller or a user evicted it: its replacement is restored all the same
		m.markCut(task)
		m.markEvicted(task)
		return rules.Result{Message: "the source goes, and what is to be in its place waits for that"}, nil
	case task.Undoing() && !m.clings(task, source, l.nc):
		return m.resumeSource(ctx, task, source, l.nc)
	}
	result, err := m.evictStoppedSource(ctx, task, source, l.nc)
	result, err = m.orRelent(task, source, l.nc, result, err)
	return orForfeit(task, source, l.nc, result), err
}

// evictStoppedSource requests the source's eviction. The source is stopped meanwhile, so it runs on when the eviction is refused for
// long. For a source that has nothing in memory any longer, the controller retries as long as there is time.
func (m *migrate) evictStoppedSource(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if veto, err := m.retained(ctx, task, source, nc); veto != "" || err != nil {
		return rules.Result{Undo: veto != "", Message: veto}, err
	}
	empty := emptied(task, source, nc) != ""
	switch why, err := m.shutOut(ctx, source, nc); {
	case err != nil:
		return rules.Result{}, err
	case why != "" && !empty:
		return elsewhere(task, why), nil
	}
	switch why, _, err := m.unkept(ctx, task, source); { // who was may have been taken away since
	case err != nil:
		return rules.Result{}, err
	case why != "":
		return rules.Result{Undo: !empty, Message: why}, nil
	}
	if err := m.renew(ctx, task, nc); err != nil {
		return rules.Result{}, err
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver, carrying(nc)); err != nil {
		return rules.Result{}, err
	}
	answer, err := m.evictStopped(ctx, task, source)
	if err != nil {
		return rules.Result{}, err
	}
	result := m.evictedBy(task, source, answer)
	switch answer.Verdict {
	case eviction.Evicted:
		m.markCut(task)
	case eviction.Later:
		result.Undo = m.since(task, progressRefused) > undecided && !empty
	}
	return result, nil
}

// retained is why the source is not to go, as no pod would go on in its place; empty: one would.
func (m *migrate) retained(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (string, error) {
	if nc == nil {
		return "somebody has deleted the NodeCheckpoint", nil
	}
	if veto := m.hindered(task, source, nil, nc); veto != "" {
		return veto, nil
	}
	if veto, err := m.orphan(ctx, source); veto != "" || err != nil { // which may have become so since it was admitted
		return veto, err
	}
	kept, err := m.stored(ctx, task)
	switch {
	case err != nil:
		return "", err
	case kept == nil:
		return withoutRecord, nil
	}
	return m.inadmissible(ctx, task, replacementFrom(kept))
}

// completeHandover creates the replacement once nothing is left of the source, and waits until the replacement has proven itself.
func (m *migrate) completeHandover(ctx context.Context, task orchestration.Task, l handover) (rules.Result, error) {
	if err := m.noteBegun(ctx, l.nc, l.replacement); err != nil {
		return rules.Result{}, err
	}
	uncounted := m.counted(ctx, l.nc, l.replacement)
	switch {
	case uncounted != nil && !refused(uncounted):
		return rules.Result{}, uncounted
	case released(task, l.nc):
		return m.settled(ctx, task, l)
	}
	if why := spoilt(l.nc); why != "" {
		return m.loseOrKeep(ctx, task, l, why)
	}
	if err := m.stage(ctx, l.nc, v1alpha1.StageHandOver); err != nil {
		return rules.Result{}, err
	}
	left, err := m.left(ctx, task.Object.Spec.Pods[0])
	switch {
	case err != nil:
		return rules.Result{}, err
	case left && m.ends(task):
		return m.leave(l, "the source was evicted, and has not ended in time, as on a node that does not answer"), nil
	case left:
		return rules.Result{Message: "the source was evicted; waits until it has ended"}, nil
	case notStarted(task, l):
		return m.createReplacement(ctx, task, l)
	case l.replacement == nil || l.replacement.DeletionTimestamp != nil:
		return m.lose(ctx, task, l.nc, "the pod in its place was taken away")
	case uncounted != nil: // its Job would make another one once it is released
		return m.unsettled(ctx, task, l, rules.Result{Message: uncounted.Error()})
	}
	return m.verifyReplacement(ctx, task, l)
}

// released tells whether the replacement has proven itself, or need not any longer.
func released(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) bool {
	return task.Progress[progressReleased] != "" || nc != nil && nc.Spec.Stage == v1alpha1.StageRelease
}

// createReplacementPod creates the replacement from the stored PodTemplate.
func (m *migrate) createReplacementPod(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRestoring); err != nil {
		return rules.Result{}, err
	}
	kept, err := m.stored(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	if kept == nil {
		return m.lose(ctx, task, nc, withoutRecord)
	}
	replacement := replacementFrom(kept)
	if why, err := m.barred(ctx, task, nc, replacement); why != "" || err != nil {
		return m.loseUnless(ctx, err, task, nc, why)
	}
	err = m.Client.Create(ctx, replacement)
	if apierrors.IsAlreadyExists(err) {
		if replacement, err = m.copied(ctx, m.API, task); err != nil {
			return rules.Result{}, err
		}
		if replacement == nil {
			return m.lose(ctx, task, nc, "somebody else has made a pod of its name")
		}
	}
	if err != nil {
		return m.creationRefused(ctx, task, nc, replacement, err)
	}
	task.Progress[progressTwin] = replacement.Name
	task.Progress[progressMade] = m.Clock.Now().UTC().Format(time.RFC3339Nano)
	delete(task.Progress, progressForbidden)
	delete(task.Progress, progressUnkept)
	return rules.Result{Message: fmt.Sprintf("pod %s/%s waits for a node", replacement.Namespace, replacement.Name)}, nil
}

// barred returns why a replacement is not to be created; it is empty if it is. Its owner may want no pods any longer, or may have
// deleted the replacement before it as that was of a former template.
func (m *migrate) barred(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod) (string, error) {
	if by := metav1.GetControllerOf(replacement); by != nil {
		switch wants, err := m.wants(ctx, *by, replacement, true); {
		case err != nil || !wants.any:
			return wants.why, err
		case wants.outdated != "" && madeBefore(task, nc):
			return wants.outdated, nil
		}
	}
	return m.stolen(ctx, task, &replacement.Spec)
}

// verifyReplacement waits until the replacement was restored and has proven itself. A Job's pod may have ended meanwhile.
func (m *migrate) verifyReplacement(ctx context.Context, task orchestration.Task, l handover) (rules.Result, error) {
	if why, err := m.unmade(ctx, l.nc, l.replacement, toRestore(l.nc)); why != "" || err != nil {
		return m.loseUnless(ctx, err, task, l.nc, why)
	}
	if l.replacement.Spec.NodeName == "" && !finished(l.replacement) {
		return m.awaitTarget(ctx, task, l)
	}
	why := unrestored(l.nc, l.replacement)
	if why == "" && task.Progress[progressRestored] != string(l.replacement.UID) {
		return m.noteRestored(ctx, task, l)
	}
	switch {
	case why != "" && m.untold(task, l.replacement):
		return m.comesTo(ctx, task, l, why)
	case why == "" && l.replacement.Status.Phase == corev1.PodSucceeded:
		task.Progress[progressEvidence] = "it came to its end"
	default:
		result, settled, err := m.settles(ctx, task, l.replacement)
		if err != nil {
			return rules.Result{}, err
		}
		if !settled {
			return m.unsettled(ctx, task, l, result)
		}
	}
	task.Progress[progressEvidence] += runtimeSays
	down, known := standstill(task, l.replacement)
	if known {
		task.Progress[progressDown] = down.String()
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationVerifying, verified(task, m.Clock.Now()), unavailable(down, known)); err != nil {
		return rules.Result{}, err
	}
	return rules.Result{Message: "the pod goes on on node " + l.nc.Spec.TargetNode}, m.stage(ctx, l.nc, v1alpha1.StageRelease)
}

// noteRestored records that the replacement was restored, before anything else, as only the NodeCheckpoint would show it otherwise. The
// owner counts the pod from now on.
func (m *migrate) noteRestored(ctx context.Context, task orchestration.Task, l handover) (rules.Result, error) {
	if err := m.free(ctx, task); err != nil {
		return rules.Result{}, err
	}
	task.Progress[progressRestored] = string(l.replacement.UID)
	return rules.Result{Message: "the pod goes on with its state on node " + l.nc.Spec.TargetNode + ", and is to prove itself"}, nil
}

// settled ends it, once the agents hold nothing any longer.
func (m *migrate) settled(ctx context.Context, task orchestration.Task, l handover) (rules.Result, error) {
	if task.Progress[progressReleased] == "" {
		task.Progress[progressReleased] = "true"
		return rules.Result{Message: "the pod goes on; its state is removed"}, nil
	}
	if done, err := m.forget(ctx, l.nc); err != nil || !done && !m.over(task) {
		return rules.Result{Message: "the pod goes on; waits until the agents have removed its state"}, err
	}
	if err := m.unstore(ctx, task); err != nil {
		return rules.Result{}, err
	}
	if result, confirmed := m.confirm(task, l.replacement); !confirmed {
		return result, nil
	}
	if l.replacement != nil && l.replacement.Annotations[annotationUncounted] != "" {
		return rules.Result{Outcome: rules.Failed, Message: "the pod goes on with its state, and its Job does not count it: somebody refuses that its finalizer is put on"}, nil
	}
	return m.succeed(ctx, task, nil, l.replacement)
}
