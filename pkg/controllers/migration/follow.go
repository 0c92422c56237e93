package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// settling is how long a pod may find no room on the target before any node will do.
	settling = 15 * time.Second
	// asking is how often an owner that makes no pod is asked why.
	asking = 5 * time.Second
	// poll is how often the queue has a step taken, about.
	poll = time.Second
)

// before is what there was before the eviction: by it, pods that were made afterwards are told from the others. Times
// are the API server's, so that no clocks are compared.
type before struct {
	// Node that the pod was on.
	Node  string                `json:"node"`
	Owner metav1.OwnerReference `json:"owner"`
	// Newest is when the last of the owner's pods was made, Of those of that second.
	Newest metav1.Time `json:"newest"`
	Of     []types.UID `json:"of"`
	// Index of an Indexed Job that the pod was of.
	Index string `json:"index,omitempty"`
}

// gone is the evicted pod, as far as its owner cares.
func (b before) gone(pod v1alpha1.ActionPod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: b.Index},
	}}
}

// prepare records the owner's pods before the eviction, if there are newer ones than those on record. It uses the cache, and is called
// once more a step later, just before the eviction. A pod that the cache had not shown by then counts as created after it, which it
// nearly was.
func (m *migrate) prepare(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (more bool, err error) {
	b := before{
		Node: pod.Spec.NodeName, Owner: *metav1.GetControllerOf(pod), Newest: pod.CreationTimestamp, Index: pod.Annotations[batchv1.JobCompletionIndexAnnotation],
	}
	pods, err := m.siblings(ctx, m.Client, pod.Namespace, b.Owner)
	if err != nil {
		return false, err
	}
	if known, err := recorded(task.Progress); err != nil || known != nil && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return known.later(&p) }) {
		return false, err
	}
	for _, p := range pods {
		if b.Newest.Before(&p.CreationTimestamp) {
			b.Newest, b.Of = p.CreationTimestamp, nil
		}
		if p.CreationTimestamp.Equal(&b.Newest) {
			b.Of = append(b.Of, p.UID)
		}
	}
	text, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("recording the pods of %s %s: %w", b.Owner.Kind, b.Owner.Name, err)
	}
	task.Progress[progressBefore] = string(text)
	return true, nil
}

// recorded is what is on record in an action's progress; nil for nothing.
func recorded(progress map[string]string) (*before, error) {
	text, ok := progress[progressBefore]
	if !ok {
		return nil, nil
	}
	b := &before{}
	if err := json.Unmarshal([]byte(text), b); err != nil {
		return nil, fmt.Errorf("reading entry %s of the action's progress: %w", progressBefore, err)
	}
	return b, nil
}

// siblings are the pods of an owner that are neither finished nor ending, from the oldest.
func (m *migrate) siblings(ctx context.Context, from client.Reader, namespace string, owner metav1.OwnerReference) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
	}
	out := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		by := metav1.GetControllerOf(&p)
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		return by == nil || by.UID != owner.UID || finished || p.DeletionTimestamp != nil
	})
	slices.SortFunc(out, byAge)
	return out, nil
}

// byAge puts the pod that was made first before the other.
func byAge(a, b corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// follow waits until the pod in the place of the evicted one runs with its cores on another node. An eviction cannot be undone. So the
// user, or the controller that withdrew the action, is also told how it ended.
func (m *migrate) follow(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if err := m.findEvicted(ctx, task); err != nil {
		return rules.Result{}, err
	}
	b, err := recorded(task.Progress)
	if err != nil {
		return rules.Result{}, err
	}
	result, err := m.look(ctx, task, *b)
	if err != nil || result.Outcome.Over() || !m.over(task) {
		return result, err
	}
	return rules.Result{Outcome: rules.Failed, Message: "the pod was evicted, and the time is over: " + result.Message}, nil
}

// over tells whether the time of an action is over: it was rolled back for that reason, or the time left after its withdrawal is over.
func (m *migrate) over(task orchestration.Task) bool {
	deadline, ok := task.Action.Deadline()
	return task.Undoing() && (!task.Action.Unwanted || ok && !m.Clock.Now().Add(ending).Before(deadline))
}

// look finds the pod in the place of the evicted one, and says how far it has come.
func (m *migrate) look(ctx context.Context, task orchestration.Task, b before) (rules.Result, error) {
	pod, err := m.replacement(ctx, task, b)
	if err != nil {
		return rules.Result{}, err
	}
	if (pod == nil || pod.Spec.NodeName == "") && m.lasts(task) {
		if err := m.enter(ctx, task, v1alpha1.MigrationRestoring); err != nil {
			return rules.Result{}, err
		}
	}
	if pod == nil {
		return m.missing(ctx, task, b)
	}
	name := pod.Namespace + "/" + pod.Name
	switch node := pod.Spec.NodeName; node {
	case "":
		return m.homeless(ctx, task, pod)
	case b.Node:
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s, in place of the evicted one, came back to node %s", name, node)}, nil
	}
	if err := m.hand(task); err != nil { // its claim has the core, or one elsewhere
		return rules.Result{}, err
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationVerifying, arriving(pod)); err != nil {
		return rules.Result{}, err
	}
	evidence, why := m.prove(task, pod)
	if why != "" {
		return rules.Result{Message: why}, nil
	}
	task.Progress[progressEvidence], task.Progress[progressReplacement] = evidence, string(pod.UID)
	return m.arrived(task, pod), nil
}

// lasts tells whether it takes long that there is no pod in the evicted one's place: what passes within seconds is not worth a write.
func (m *migrate) lasts(task orchestration.Task) bool {
	at, err := time.Parse(time.RFC3339Nano, task.Progress[progressEvicted])
	return err != nil || m.Clock.Now().Sub(at) >= again
}

// homeless handles a pod in the evicted one's place that has no node. If it may only go to the target and finds no room there, the
// controller deletes it once. The owner recreates it, and the scheduler chooses the node. Else the pod would never run.
func (m *migrate) homeless(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	name, why := pod.Namespace+"/"+pod.Name, unschedulable(pod)
	_, free := task.Progress[progressFree]
	if why == "" || free || pod.Annotations[v1alpha1.AnnotationPinned] == "" || m.Clock.Now().Sub(pod.CreationTimestamp.Time) < settling {
		return rules.Result{Message: fmt.Sprintf("pod %s waits for a node%s", name, why)}, nil
	}
	if err := m.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return rules.Result{}, fmt.Errorf("deleting pod %s: %w", name, err)
	}
	task.Progress[progressFree] = pod.Name
	return rules.Result{Message: fmt.Sprintf("pod %s finds no room on node %s, and is made again for any node%s", name, task.Object.Spec.TargetNode, why)}, nil
}

// arrived ends the action.
func (m *migrate) arrived(task orchestration.Task, pod *corev1.Pod) rules.Result {
	to, former := pod.Spec.NodeName, task.Object.Spec.Pods[0]
	took := ""
	if at, err := time.Parse(time.RFC3339Nano, task.Progress[progressEvicted]); err == nil && task.Progress[progressUntimed] == "" {
		until, ok := readySince(pod)
		if !ok || until.Before(at) { // its kubelet's clock has whole seconds
			until = m.Clock.Now().Add(-steady)
		}
		down := max(0, until.Sub(at))
		task.Progress[progressDown] = down.String()
		took = fmt.Sprintf(" %s after the eviction", down.Round(100*time.Millisecond))
	}
	return m.done(task, pod, fmt.Sprintf("pod %s/%s runs on node %s%s in place of %s/%s%s", pod.Namespace, pod.Name, to, m.withCores(pod), former.Namespace, former.Name, took))
}

// withCores says so of a pod that a McKube governs.
func (m *migrate) withCores(pod *corev1.Pod) string {
	if view, ok := m.Store.Snapshot().Pod(pod.UID); ok && len(view.Governed) > 0 {
		return " with its cores"
	}
	return ""
}

// done ends the action with a pod that was seen to do what the source did.
func (m *migrate) done(task orchestration.Task, pod *corev1.Pod, message string) rules.Result {
	name, cores := pod.Namespace+"/"+pod.Name, m.withCores(pod) != ""
	m.Recorder.Publish(events.Migrated(pod, string(pod.UID), name, task.Object.Spec.Node, pod.Spec.NodeName, task.Object.Name, cores))
	if down, err := time.ParseDuration(task.Progress[progressDown]); err == nil {
		metrics.MigrationDowntime.Observe(down.Seconds())
	}
	return rules.Result{Outcome: rules.Succeeded, Message: message}
}

// hand gives the reserved cores to the pod that is on its node: from there on its claims count. A record that none are reserved stays as
// it is.
func (m *migrate) hand(task orchestration.Task) error {
	m.Store.ReleaseMigration(task.Object.Name)
	if room, err := state.ParseMigration(task.Progress[state.ProgressReserved]); err == nil && len(room.Cores) == 0 {
		return nil
	}
	text, err := state.Migration{}.Encode()
	if err != nil {
		return err
	}
	task.Progress[state.ProgressReserved] = text
	return nil
}

// replacement is the pod in the place of the evicted one; nil while there is none. An annotation on it says in whose
// place it is, so that two migrations of one owner's pods do not both take it for theirs.
func (m *migrate) replacement(ctx context.Context, task orchestration.Task, b before) (*corev1.Pod, error) {
	source := task.Object.Spec.Pods[0]
	pods, err := m.siblings(ctx, m.Client, source.Namespace, b.Owner)
	if err != nil {
		return nil, err
	}
	var found *corev1.Pod
	for i := range pods {
		p := &pods[i]
		switch of := p.Annotations[mcv1.AnnotationReplaces]; {
		case of == string(source.UID):
			if gated(p) { // only another controller or user can have added the gate again
				_, err := m.release(ctx, task, p)
				return p, err
			}
			return p, nil
		case of == "" && found == nil && b.later(p) && p.UID != source.UID && b.place(source.Name, p):
			found = p
		}
	}
	if found == nil {
		return nil, nil
	}
	return m.mark(ctx, task, found)
}

// mark notes on a pod whose place it takes. It returns no pod while other controllers write the pod as well: the next step looks again.
func (m *migrate) mark(ctx context.Context, task orchestration.Task, found *corev1.Pod) (*corev1.Pod, error) {
	if gated(found) {
		_, err := m.release(ctx, task, found)
		return found, err
	}
	if found.Spec.NodeName == "" {
		return found, nil // the scheduler is about to write it
	}
	marked := found.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, mcv1.AnnotationReplaces, string(task.Object.Spec.Pods[0].UID))
	err := m.Client.Patch(ctx, marked, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("marking pod %s/%s: %w", found.Namespace, found.Name, err)
	}
	return marked, nil
}

// missing is what to say while there is no pod in the evicted one's place, and whether there will be one. That none will
// only the API server may say.
func (m *migrate) missing(ctx context.Context, task orchestration.Task, b before) (rules.Result, error) {
	namespace := task.Object.Spec.Pods[0].Namespace
	waits := rules.Result{Message: fmt.Sprintf("the pod was evicted; waits for %s %s to make it again", b.Owner.Kind, b.Owner.Name)}
	if !m.due(task) {
		return waits, nil
	}
	wants, err := m.wants(ctx, b.Owner, b.gone(task.Object.Spec.Pods[0]), true)
	if err != nil {
		return rules.Result{}, err
	}
	if !wants.any {
		return rules.Result{Outcome: rules.Failed, Message: "the pod was evicted, and nothing takes its place: " + wants.why}, nil
	}
	if wants.pods < 0 {
		return waits, nil
	}
	pods, err := m.siblings(ctx, m.API, namespace, b.Owner)
	if err != nil {
		return rules.Result{}, err
	}
	free := slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		of := p.Annotations[mcv1.AnnotationReplaces]
		return b.later(&p) && (of == "" || of == string(task.Object.Spec.Pods[0].UID))
	})
	if len(pods) >= wants.pods && !free {
		return rules.Result{
			Outcome: rules.Failed,
			Message: fmt.Sprintf("the pod was evicted, and nothing takes its place: %s %s wants %d pods, and has them", b.Owner.Kind, b.Owner.Name, wants.pods),
		}, nil
	}
	return waits, nil
}

// due tells whether it is time to ask the owner why it makes no pod: some seconds after the eviction, and each so many from then on.
func (m *migrate) due(task orchestration.Task) bool {
	at, err := time.Parse(time.RFC3339Nano, task.Progress[progressEvicted])
	waited := m.Clock.Since(at)
	return err != nil || waited >= asking && waited%asking < poll || m.over(task)
}

// unschedulable is what the scheduler says about a pod, after a colon.
func unschedulable(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}
