package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// Gates takes the gates of migrations off pods for which no migration waits: the webhook gates all that an owner makes
// while one of its pods is on the move, and as many of them take places as pods have really gone.
type Gates struct {
	Client client.Client
	// API asks the API server itself.
	API client.Reader
}

// Register adds the loop to a manager.
func (g *Gates) Register(_ context.Context, m manager.Manager) error {
	waiting := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && gated(pod)
	})
	return controllerruntime.NewControllerManagedBy(m).
		Named("migration.gates").
		For(&corev1.Pod{}, builder.WithPredicates(waiting)).
		Watches(&v1alpha1.PodMigration{}, handler.EnqueueRequestsFromMapFunc(g.behind)).
		Complete(g)
}

// behind are the gated pods of a migration's owner.
func (g *Gates) behind(ctx context.Context, o client.Object) []reconcile.Request {
	list := &corev1.PodList{}
	if err := g.Client.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
		return nil // the next event, or resync, brings it again
	}
	var out []reconcile.Request
	for i := range list.Items {
		if gated(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile looks at one gated pod.
func (g *Gates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pod := &corev1.Pod{}
	if err := g.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !gated(pod) || pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	for _, from := range []client.Reader{g.Client, g.API} { // what the cache does not show yet may wait for it
		if awaited, err := awaits(ctx, from, pod); awaited || err != nil {
			return reconcile.Result{RequeueAfter: again}, err
		}
	}
	if kept, err := g.beside(ctx, pod); kept || err != nil {
		return reconcile.Result{RequeueAfter: again}, err
	}
	after := pod.DeepCopy()
	ungate(after)
	if err := g.Client.Patch(ctx, after, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("taking the gate off pod %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// awaits tells whether any migration under way waits for the pod. If the pod is a copy, or its annotation says which pod it replaces,
// that migration waits for it. Of an owner's other pods the oldest are awaited, as many as it has lost pods that have no replacement
// yet. What the owner creates while an eviction is refused, or in addition, replaces no pod. awaits looks at the pods, not at what is on
// record of them: the process that evicted a pod may have died before it recorded that.
func awaits(ctx context.Context, from client.Reader, pod *corev1.Pod) (bool, error) {
	list := &v1alpha1.PodMigrationList{}
	if err := from.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return false, fmt.Errorf("listing PodMigrations of namespace %s: %w", pod.Namespace, err)
	}
	of := types.UID(pod.Annotations[mcv1.AnnotationReplaces])
	left := map[types.UID]bool{}
	for i := range list.Items {
		switch o := &list.Items[i]; {
		case o.Status.Phase.Over() || o.Status.Source == nil:
		case of != "" && of == o.Status.Source.PodUID:
			return true, nil
		case of == "" && v1alpha1.AwaitsReplacement(o, pod):
			left[o.Status.Source.PodUID] = true
		}
	}
	if len(left) == 0 {
		return false, nil
	}
	pods := &corev1.PodList{}
	if err := from.List(ctx, pods, client.InNamespace(pod.Namespace)); err != nil {
		return false, fmt.Errorf("listing pods of namespace %s: %w", pod.Namespace, err)
	}
	return older(pod, pods.Items) < len(vacant(left, pods.Items)), nil
}

// vacant are those of pods that have gone, or are about to, in whose place there is no other.
func vacant(left map[types.UID]bool, pods []corev1.Pod) map[types.UID]bool {
	out := maps.Clone(left)
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp == nil {
			delete(out, p.UID)
			delete(out, types.UID(p.Annotations[mcv1.AnnotationReplaces]))
		}
	}
	return out
}

// older counts the gated pods of the same owner that are older than the pod and may replace the same lost pod.
func older(pod *corev1.Pod, pods []corev1.Pod) (n int) {
	owner := metav1.GetControllerOf(pod)
	for i := range pods {
		p := &pods[i]
		if metav1.IsControlledBy(p, &metav1.ObjectMeta{UID: owner.UID}) && gated(p) && p.DeletionTimestamp == nil && p.Annotations[mcv1.AnnotationReplaces] == "" &&
			p.Annotations[batchv1.JobCompletionIndexAnnotation] == pod.Annotations[batchv1.JobCompletionIndexAnnotation] && byAge(*p, *pod) < 0 {
			n++
		}
	}
	return n
}

// beside tells whether the pod is the copy of an ownerless pod that still exists: both would run then. The gate stays for as long as the
// source takes to end. If the source does not end and no migration is under way any longer, beside deletes the copy.
func (g *Gates) beside(ctx context.Context, pod *corev1.Pod) (bool, error) {
	of := types.UID(pod.Annotations[mcv1.AnnotationReplaces])
	if of == "" || metav1.GetControllerOf(pod) != nil {
		return false, nil
	}
	list := &corev1.PodList{}
	if err := g.API.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return false, fmt.Errorf("listing pods of namespace %s: %w", pod.Namespace, err)
	}
	i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.UID == of })
	if i < 0 || list.Items[i].DeletionTimestamp != nil {
		return i >= 0, nil
	}
	if awaited, err := awaits(ctx, g.API, pod); awaited || err != nil { // which the cache may not show yet
		return true, err
	}
	if err := g.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return true, fmt.Errorf("deleting pod %s/%s, in whose place another runs: %w", pod.Namespace, pod.Name, err)
	}
	return true, nil
}

// askedAgain is how often the controller asks the API server anew about an owner's entry, while the eviction is refused.
const askedAgain = 5 * time.Second

// ungated returns why the owner's next pod would not wait until it is bound to the target; it is empty if the pod would, or if the API
// server does not say. Without that wait the pod would return to the source's node if the scheduler prefers that. It cannot return to a
// node that is cordoned or about to go.
func (m *migrate) ungated(ctx context.Context, task orchestration.Task, source *corev1.Pod) (string, error) {
	if task.Object.Spec.TargetNode == "" || !m.watches.asksGating(task.Object.Name, m.Clock.Now()) {
		return "", nil
	}
	if gone, err := m.closed(ctx, source.Spec.NodeName); gone != "" || err != nil {
		return "", err
	}
	if !m.Gating {
		return unbinding(metav1.GetControllerOf(source)), nil
	}
	why, err := m.askGated(ctx, task, source)
	if why == "" && err == nil {
		m.watches.noteGated(task.Object.Name, m.Clock.Now())
	}
	return why, err
}

// askGated finds out, by a dry run, whether the API server applies the webhook configuration's entry for the owner. The probe has no
// label sdv.com, as the owner's pod has none unless its template has it: both go to the same webhook. Other plugins and policies that
// refuse the pod, such as a quota without room for both, or a policy on who creates it, run after the webhook, and say nothing here.
func (m *migrate) askGated(ctx context.Context, task orchestration.Task, source *corev1.Pod) (string, error) {
	owner := *metav1.GetControllerOf(source)
	probe := ofPod(task, source)
	delete(probe.Labels, mcv1.LabelRT)
	probe.Name, probe.OwnerReferences = ownName(task), []metav1.OwnerReference{owner}
	probe.OwnerReferences[0].BlockOwnerDeletion = nil // some clusters let only those set it who may finalize the owner
	switch err := m.Client.Create(ctx, probe, client.DryRunAll); {
	case refused(err) || apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err): // a webhook that does not answer, and must
		return fmt.Sprintf("the API server cannot make a pod in the place of %s/%s: %v", source.Namespace, source.Name, err), nil
	case err != nil:
		return "", fmt.Errorf("asking whether a pod in the place of %s/%s would wait for its place: %w", source.Namespace, source.Name, err)
	case !gated(probe):
		return fmt.Sprintf("the API server does not send the webhook what %s %s makes, so nothing would bind the pod to node %s", owner.Kind, owner.Name, task.Object.Spec.TargetNode), nil
	}
	return "", nil
}

// unbinding is why nothing binds what an owner makes where the controller serves no webhooks.
func unbinding(owner *metav1.OwnerReference) string {
	return fmt.Sprintf("the controller runs without webhooks (--webhook-port=0), so nothing would bind what %s %s makes to a node; say strategy Evict, and the scheduler chooses", owner.Kind, owner.Name)
}
