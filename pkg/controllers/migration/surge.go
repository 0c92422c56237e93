package migration

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// homeless is how long the copy may wait for its node: the target was thought to have room for it.
	homeless = time.Minute
	// lingering is how long the source may stay after its owner has one pod more than it wants. Then it is evicted.
	lingering = 30 * time.Second
)

// surge has a copy of the pod run on the target, which the pod's ReplicaSet then takes for its own, and removes the source.
func (m *migrate) surge(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	twin, err := m.twinOf(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	switch {
	case untaken(task, twin):
		return m.undo(ctx, task, source)
	case task.Progress[progressCut] != "" || adopted(twin):
		return m.succeed(ctx, task, source, twin)
	case twin == nil && source == nil && m.was(ctx, task, v1alpha1.MigrationCuttingOver):
		return m.succeed(ctx, task, source, twin)
	case task.Undoing():
		return m.undo(ctx, task, source)
	case source == nil:
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	}
	if twin == nil {
		return m.prepareTwin(ctx, task, source, m.beside)
	}
	if why, err := m.stranded(ctx, twin); err != nil {
		return rules.Result{}, err
	} else if why != "" {
		return elsewhere(task, why), nil
	}
	if result, settled, err := m.settles(ctx, task, twin); !settled || err != nil {
		return result, err
	}
	return m.cutOver(ctx, task, source, twin)
}

// stranded returns why a copy cannot serve where it is, as its node has died or is about to go; it is empty if it may. The kubelet does
// not report then that the copy does not serve.
func (m *migrate) stranded(ctx context.Context, twin *corev1.Pod) (string, error) {
	if twin.Spec.NodeName == "" {
		return "", nil
	}
	why, err := m.nodeVeto(ctx, twin.Spec.NodeName, dead)
	if why != "" {
		why = fmt.Sprintf("pod %s/%s cannot serve on node %s: %s", twin.Namespace, twin.Name, twin.Spec.NodeName, why)
	}
	return why, err
}

// prepareTwin reserves the room, and then has the copy made.
func (m *migrate) prepareTwin(ctx context.Context, task orchestration.Task, source *corev1.Pod, do func(context.Context, orchestration.Task, *corev1.Pod) (rules.Result, error)) (rules.Result, error) {
	_, reserved := task.Progress[state.ProgressReserved]
	switch result, ok, err := m.fit(ctx, task, source); {
	case !ok && reserved && err == nil && !result.Undo:
		return m.wait(ctx, task, source, result.Message)
	case !ok:
		return result, err
	case !reserved:
		return m.reserve(ctx, task, source)
	}
	if result, kept, err := m.keepRoom(ctx, task, source); !kept {
		return result, err
	}
	return do(ctx, task, source)
}

// wait says that the room is kept, and what is waited for.
func (m *migrate) wait(ctx context.Context, task orchestration.Task, source *corev1.Pod, why string) (rules.Result, error) {
	return rules.Result{Message: why}, m.enter(ctx, task, v1alpha1.MigrationReserving, describe(task, source))
}

// beside makes the copy of a ReplicaSet's pod.
func (m *migrate) beside(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	owner, err := m.replicaSet(ctx, source)
	if err != nil {
		return rules.Result{}, err
	}
	if owner == nil {
		return rules.Result{Undo: true, Message: "the pod's ReplicaSet is gone"}, nil
	}
	twin := ofTemplate(task, source, owner)
	twin.Annotations[v1alpha1.AnnotationAction] = task.Object.Name
	return m.makeTwin(ctx, task, twin, describe(task, source))
}

// makeTwin makes the copy, which the scheduler will find nowhere to put but on the target.
func (m *migrate) makeTwin(ctx context.Context, task orchestration.Task, twin *corev1.Pod, change ...func(*v1alpha1.PodMigrationStatus)) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRestoring, change...); err != nil {
		return rules.Result{}, err
	}
	v1alpha1.Pin(twin, task.Object.Spec.TargetNode)
	if veto, err := m.create(ctx, task, twin); veto != "" || err != nil {
		return rules.Result{Undo: veto != "", Message: veto}, err
	}
	return rules.Result{Message: fmt.Sprintf("pod %s/%s waits for a node", twin.Namespace, twin.Name)}, nil
}

// settles tells whether the copy does what the source did. It cannot any longer when the copy ends, or finds no node.
func (m *migrate) settles(ctx context.Context, task orchestration.Task, twin *corev1.Pod) (rules.Result, bool, error) {
	name := twin.Namespace + "/" + twin.Name
	switch {
	case twin.DeletionTimestamp != nil:
		return rules.Result{Undo: true, Message: fmt.Sprintf("somebody deletes pod %s", name)}, false, nil
	case finished(twin):
		return rules.Result{Undo: true, Message: fmt.Sprintf("pod %s has ended: %s", name, twin.Status.Phase)}, false, nil
	case twin.Spec.NodeName == "" && m.Clock.Now().Sub(twin.CreationTimestamp.Time) > homeless:
		return elsewhere(task, fmt.Sprintf("pod %s finds no node%s", name, unschedulable(twin))), false, nil
	case twin.Spec.NodeName == "":
		return rules.Result{Message: fmt.Sprintf("pod %s waits for a node%s", name, unschedulable(twin))}, false, nil
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationVerifying, arriving(twin)); err != nil {
		return rules.Result{}, false, err
	}
	if err := m.hand(task); err != nil {
		return rules.Result{}, false, err
	}
	evidence, why := m.prove(task, twin)
	if why != "" {
		return rules.Result{Message: why}, false, nil
	}
	task.Progress[progressEvidence] = evidence
	return rules.Result{}, true, nil
}

// cutOver has the ReplicaSet take the copy for its own, and the source be what is one too many. When another pod of it
// is not ready that one would go instead, so it is waited for.
func (m *migrate) cutOver(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod) (rules.Result, error) {
	// If the cache is behind, a ReplicaSet that wants no pods removes both, as it would have removed the source. taken finds a deleted
	// ReplicaSet.
	owner, err := m.replicaSet(ctx, source)
	switch {
	case err != nil:
		return rules.Result{}, err
	case owner == nil:
		return rules.Result{Undo: true, Message: "the pod's ReplicaSet is gone"}, nil
	case owner.Spec.Replicas != nil && *owner.Spec.Replicas == 0:
		return rules.Result{Undo: true, Message: fmt.Sprintf("ReplicaSet %s, which made it, wants no pods any longer", owner.Name)}, nil
	}
	pods, err := m.siblings(ctx, m.Client, source.Namespace, *metav1.GetControllerOf(source))
	if err != nil {
		return rules.Result{}, err
	}
	for i := range pods {
		if p := &pods[i]; p.UID != source.UID && !ready(p) {
			return rules.Result{Message: fmt.Sprintf("pod %s/%s serves; waits until pod %s of the same ReplicaSet is ready, which would go otherwise", twin.Namespace, twin.Name, p.Name)}, nil
		}
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver, verified(task, m.Clock.Now())); err != nil {
		return rules.Result{}, err
	}
	if task.Progress[progressMigration] != "" {
		delete(task.Progress, progressEvidence) // it is on record there, and need not be stored here as well
	}
	if err := m.yield(ctx, source); err != nil {
		return rules.Result{}, err
	}
	return m.adopt(ctx, twin, owner)
}

// adopt gives the copy the label by which its ReplicaSet finds it. That cannot be undone: the label itself is the record of it.
func (m *migrate) adopt(ctx context.Context, twin *corev1.Pod, owner *appsv1.ReplicaSet) (rules.Result, error) {
	after := twin.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationAction)
	metav1.SetMetaDataLabel(&after.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, owner.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(twin, client.MergeFromWithOptimisticLock{})); err != nil {
		return rules.Result{}, fmt.Errorf("handing pod %s/%s to ReplicaSet %s: %w", twin.Namespace, twin.Name, owner.Name, err)
	}
	return rules.Result{Message: fmt.Sprintf("pod %s/%s is handed to ReplicaSet %s, and the source goes", twin.Namespace, twin.Name, owner.Name)}, nil
}

// adopted tells whether the copy was handed to its ReplicaSet.
func adopted(twin *corev1.Pod) bool {
	return twin != nil && twin.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != ""
}

// markCut remembers when nothing could be undone any longer.
func (m *migrate) markCut(task orchestration.Task) {
	if task.Progress[progressCut] == "" {
		task.Progress[progressCut] = m.Clock.Now().UTC().Format(time.RFC3339Nano)
	}
}

// succeed waits until the source is gone. One that its owner keeps is evicted.
func (m *migrate) succeed(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod) (rules.Result, error) {
	if source != nil { // mostly it goes at once
		m.markCut(task)
	}
	former, to := task.Object.Spec.Pods[0], task.Object.Spec.TargetNode
	if twin == nil || twin.DeletionTimestamp != nil {
		forfeit(task, "the pod in its place was taken away")
		return rules.Result{Outcome: rules.Failed, Message: "the pod in its place was taken away after it was handed over" + still(source)}, nil
	}
	if source == nil || m.lingers(task) { // mostly the ReplicaSet has taken it before the source goes
		if result, taken, err := m.taken(ctx, task, twin); !taken || err != nil {
			return result, err
		}
	}
	switch {
	case source == nil:
		task.Progress[progressReplacement] = twin.Name
		return m.done(task, twin, fmt.Sprintf("pod %s/%s runs on node %s in place of %s/%s", twin.Namespace, twin.Name, twin.Spec.NodeName, former.Namespace, former.Name)), nil
	case m.ends(task):
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s/%s runs on node %s, and the source is still there", twin.Namespace, twin.Name, to)}, nil
	}
	if m.lingers(task) {
		if _, err := m.ask(ctx, task, source); err != nil {
			return rules.Result{}, err
		}
	}
	return rules.Result{Message: fmt.Sprintf("pod %s/%s runs on node %s; waits until the source is gone", twin.Namespace, twin.Name, twin.Spec.NodeName)}, nil
}

// lingers tells whether the source has been there for long since nothing can be undone any longer.
func (m *migrate) lingers(task orchestration.Task) bool {
	cut, err := time.Parse(time.RFC3339Nano, task.Progress[progressCut])
	return err == nil && m.Clock.Now().Sub(cut) > lingering
}

// still says what is left of the source.
func still(source *corev1.Pod) string {
	if source == nil {
		return ""
	}
	return "; the pod runs on on node " + source.Spec.NodeName
}

// undo takes the copy away. The source has been running all the while.
func (m *migrate) undo(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRollingBack, from(task, source)); err != nil {
		return rules.Result{}, err
	}
	if gone, err := m.discard(ctx, task); !gone || err != nil {
		return rules.Result{Message: "waits until the pod in its place is gone"}, err
	}
	if source == nil {
		return rules.Result{Outcome: rules.RolledBack, Message: "nothing is left of it, and the pod is gone"}, nil
	}
	if err := m.stay(ctx, source); err != nil {
		return rules.Result{}, err
	}
	return undone(task, source), nil
}

// undone says where the source is, and that it begins anew, or has come to its end, if that is so.
func undone(task orchestration.Task, source *corev1.Pod) rules.Result {
	node, why := source.Spec.NodeName, task.Progress[progressForfeited]
	switch {
	case why != "" && finished(source):
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("%s%s; it has ended on node %s: %s", lostMemory, why, node, source.Status.Phase)}
	case why != "":
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("%s%s; it begins anew on node %s", lostMemory, why, node)}
	case finished(source):
		return rules.Result{Outcome: rules.RolledBack, Message: fmt.Sprintf("the pod has ended on node %s: %s", node, source.Status.Phase)}
	}
	return rules.Result{Outcome: rules.RolledBack, Message: "the pod stays on node " + node}
}

// replicaSet is the pod's owner; nil when it is gone, or about to go, which only the API server may say.
func (d Dependencies) replicaSet(ctx context.Context, pod *corev1.Pod) (*appsv1.ReplicaSet, error) {
	owner, err := replicaSetBy(ctx, d.Client, pod)
	if owner != nil || err != nil {
		return owner, err
	}
	return replicaSetBy(ctx, d.API, pod)
}

func replicaSetBy(ctx context.Context, from client.Reader, pod *corev1.Pod) (*appsv1.ReplicaSet, error) {
	by := metav1.GetControllerOf(pod)
	if by == nil {
		return nil, nil
	}
	owner := &appsv1.ReplicaSet{}
	err := from.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: by.Name}, owner)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ReplicaSet %s/%s: %w", pod.Namespace, by.Name, err)
	case owner.UID != by.UID || owner.DeletionTimestamp != nil:
		return nil, nil
	}
	return owner, nil
}

// ask requests the eviction of the source, and names the action and the migration in it: the gate lets it pass. Pods of Jobs are evicted
// one after the other, so that the next request sees that the pod before terminates.
func (m *migrate) ask(ctx context.Context, task orchestration.Task, source *corev1.Pod) (eviction.Answer, error) {
	return m.askEviction(ctx, task, source, false)
}

func (m *migrate) askEviction(ctx context.Context, task orchestration.Task, source *corev1.Pod, stopped bool) (eviction.Answer, error) {
	if isJob(metav1.GetControllerOf(source)) {
		select { // one that the API server keeps waiting keeps others for no longer than they have
		case m.Evicting <- struct{}{}:
			defer func() { <-m.Evicting }()
		case <-ctx.Done():
			return eviction.Answer{}, fmt.Errorf("waiting until another pod of a Job is evicted: %w", ctx.Err())
		}
		if answer, err := m.unborne(ctx, source, nil); answer.Refused() || err != nil {
			return answer, err
		}
	}
	by := map[string]string{v1alpha1.AnnotationAction: task.Object.Name}
	if name := task.Progress[progressMigration]; name != "" {
		by[v1alpha1.AnnotationMigration] = source.Namespace + "/" + name
	}
	if stopped {
		return eviction.AskWithin(ctx, m.Client, source, briefly, by)
	}
	return eviction.AskAs(ctx, m.Client, source, by)
}

// evictStopped asks for the eviction of a source that is stopped: it cannot hear that it is asked to end, and its outage would contain the
// whole of its terminationGracePeriodSeconds.
func (m *migrate) evictStopped(ctx context.Context, task orchestration.Task, source *corev1.Pod) (eviction.Answer, error) {
	return m.askEviction(ctx, task, source, true)
}
