package migration

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// alone tells whether a copy goes on with the state of a source that somebody else has taken away: that state is nowhere else, so that neither an
// abort nor the end of its time takes the copy away.
func alone(source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	return source == nil && twin != nil && twin.DeletionTimestamp == nil && !finished(twin) &&
		nc != nil && nc.Spec.Stage == v1alpha1.StageRestore && unrestored(nc, twin) == ""
}

// serves tells whether a copy goes on with the state and is ready. It may have answered somebody by then, so that its state is newer than what the
// source stands still with: neither an abort, nor the end of any time, nor what the source's agent says takes it away. One that is not what the
// source was does not count.
func serves(task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	return task.Progress[progressUnfit] == "" && twin != nil && idle(twin) == "" &&
		nc != nil && nc.Spec.Stage == v1alpha1.StageRestore && unrestored(nc, twin) == ""
}

// confirm has a copy that was not proven before its source had to go prove itself: only the end of its time ends that.
func (m *migrate) confirm(task orchestration.Task, twin *corev1.Pod) (rules.Result, bool) {
	if task.Progress[progressEvidence] != "" || twin == nil || twin.DeletionTimestamp != nil { // which is told of elsewhere
		return rules.Result{}, true
	}
	evidence, why := m.prove(task, twin)
	switch name := twin.Namespace + "/" + twin.Name; {
	case restarts(twin) > 0:
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s went on on node %s in the source's place, and has begun anew", name, twin.Spec.NodeName)}, false
	case why != "" && m.ends(task):
		return rules.Result{Outcome: rules.Failed, Message: "the pod goes on with its state, the source is gone, and the time is over: " + why}, false
	case why != "":
		return rules.Result{Message: why}, false
	}
	task.Progress[progressEvidence] = evidence + runtimeSays
	return rules.Result{}, true
}

// restless is why two may be at work with one state: the source's agent says that a container of it did not stay paused, as its liveness probe began it anew, or
// somebody resumed it. It says so from stage Restore on, where it resumes nothing by itself; before that it gives up. A source that has come to its end is
// not at work. Empty: the source stands still.
func restless(source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) string {
	side := nc.Status.Source
	if source == nil || finished(source) || stateOf(side) != v1alpha1.CheckpointCheckpointed || side.Message == "" {
		return ""
	}
	return fmt.Sprintf("the source does not stand still any longer: node %s: %s", nc.Spec.SourceNode, side.Message)
}

// stays is why a source that is at work beside its copy may not be evicted, as for a PodDisruptionBudget; empty: it goes, or stands still.
func (m *migrate) stays(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (string, error) {
	why := restless(source, nc)
	if why == "" {
		return "", nil
	}
	waits, err := m.outweighed(ctx, source)
	if err != nil || isReplicaSet(source) && waits == "" { // that removes it, and asks nobody
		return "", err
	}
	answer, err := m.ask(ctx, task, source)
	if err != nil || !answer.Refused() {
		return "", err
	}
	return cmp.Or(answer.Why, "it may not be evicted"), nil
}

// prevail has a copy that serves be what goes on, though it is undone, and the source what goes. A source that is at work as well and does not go stays instead:
// what the copy has done since is lost, but there are no two.
func (m *migrate) prevail(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if restless(source, nc) != "" {
		if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver, verified(task, m.Clock.Now())); err != nil {
			return rules.Result{}, err
		}
	}
	why, err := m.stays(ctx, task, source, nc)
	if why != "" {
		task.Progress[progressUnfit] = why
		task.Progress[progressOusted] = "; its copy, which served, was taken away, as the source ran as well and may not be evicted: " + why
		return rules.Result{Message: "the source runs beside its copy and may not be evicted: " + why}, nil
	}
	if err != nil {
		return rules.Result{}, err
	}
	return m.releaseSource(ctx, task, twin, nc)
}

// hindered is why no copy can go on with the state; empty: one may. What the source's side says no longer matters once the source has gone.
func (m *migrate) hindered(task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) string {
	if source == nil && twin != nil && nc.Spec.Stage == v1alpha1.StageRestore {
		return spoilt(nc)
	}
	if why := restless(source, nc); why != "" {
		return why
	}
	return m.broken(task, nc)
}

// foster has the former owner of a source that has gone by itself take the copy for its own: it is not done until that is so, or was never needed.
// The owner may have made another pod meanwhile, and has one too many then.
func (m *migrate) foster(ctx context.Context, task orchestration.Task, twin *corev1.Pod) (rules.Result, bool, error) {
	by, err := m.formerOwner(ctx, task)
	if err != nil || by == nil || by.Kind != "ReplicaSet" || adopted(twin) {
		return rules.Result{}, err == nil, err
	}
	owner, err := m.replicaSet(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: twin.Namespace, OwnerReferences: []metav1.OwnerReference{*by}}})
	switch {
	case err != nil:
		return rules.Result{}, false, err
	case owner == nil:
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s/%s goes on on node %s, and ReplicaSet %s, which made its source, is gone: nobody owns it",
			twin.Namespace, twin.Name, twin.Spec.NodeName, by.Name)}, false, nil
	}
	result, err := m.adopt(ctx, twin, owner)
	return result, false, err
}

// formerOwner is who made the source, as the migration's status says; nil for nobody.
func (m *migrate) formerOwner(ctx context.Context, task orchestration.Task) (*metav1.OwnerReference, error) {
	o := &v1alpha1.PodMigration{}
	key := types.NamespacedName{Namespace: task.Object.Spec.Pods[0].Namespace, Name: task.Progress[progressMigration]}
	if key.Name == "" {
		return nil, nil
	}
	if err := m.Client.Get(ctx, key, o); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading PodMigration %s: %w", key, err)
		}
		return nil, nil
	}
	if by := o.Status.Owner; by != nil {
		return &metav1.OwnerReference{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name, UID: by.UID, Controller: ptr.To(true)}, nil
	}
	return nil, nil
}
