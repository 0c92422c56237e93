package migration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Strays removes what a migration has left on pods when its action is over, or gone: a copy that no ReplicaSet has adopted, and the
// deletion cost of a pod that was to go and stayed. The rollback may have had no time, or a user may have deleted the action by force.
type Strays struct {
	Dependencies
}

// Register adds the loop to a manager.
func (s *Strays) Register(_ context.Context, m manager.Manager) error {
	marked := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && (surplus(pod) || yielding(pod))
	})
	return controllerruntime.NewControllerManagedBy(m).
		Named("migration.strays").
		For(&corev1.Pod{}, builder.WithPredicates(marked)).
		Complete(s)
}

// surplus tells whether a pod is a copy that its ReplicaSet does not know of.
func surplus(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.AnnotationAction] != "" && pod.Annotations[annotationReplaces] != "" && !adopted(pod) && pod.DeletionTimestamp == nil
}

// yielding tells whether a pod is to be the first of its owner's that goes.
func yielding(pod *corev1.Pod) bool {
	return pod.Annotations[annotationFormerCost] != "" && pod.DeletionTimestamp == nil
}

// Reconcile looks at one pod. Only the API server may say that no action moves it any longer; while the cache shows one, Reconcile does
// not ask.
func (s *Strays) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pod := &corev1.Pod{}
	for _, from := range []client.Reader{s.Client, s.API} {
		pod = &corev1.Pod{}
		if err := from.Get(ctx, req.NamespacedName, pod); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		of := pod.UID
		switch {
		case surplus(pod):
			of = types.UID(pod.Annotations[annotationReplaces])
		case !yielding(pod):
			return reconcile.Result{}, nil
		}
		if busy, err := moved(ctx, from, of); busy || err != nil {
			return reconcile.Result{RequeueAfter: leftoverEvery}, err
		}
	}
	err := s.takeBack(ctx, pod)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// moved tells whether an action still moves a pod, or a NodeCheckpoint keeps its state.
func moved(ctx context.Context, from client.Reader, pod types.UID) (bool, error) {
	actions := &v1alpha1.RTActionList{}
	if err := from.List(ctx, actions); err != nil {
		return false, fmt.Errorf("listing actions: %w", err)
	}
	if slices.ContainsFunc(actions.Items, func(o v1alpha1.RTAction) bool {
		return !rules.Phase(o.Status.Phase).Over() && slices.ContainsFunc(o.Spec.Pods, func(p v1alpha1.ActionPod) bool { return p.UID == pod })
	}) {
		return true, nil
	}
	states := &v1alpha1.NodeCheckpointList{}
	if err := from.List(ctx, states); err != nil {
		return false, fmt.Errorf("listing NodeCheckpoints: %w", err)
	}
	return slices.ContainsFunc(states.Items, func(o v1alpha1.NodeCheckpoint) bool { return o.Spec.PodUID == pod }), nil
}

// takeBack what is on a pod, as it was read.
func (s *Strays) takeBack(ctx context.Context, pod *corev1.Pod) error {
	if yielding(pod) {
		return newMigrate(s.Dependencies).stay(ctx, pod)
	}
	err := s.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if err != nil {
		return fmt.Errorf("deleting pod %s/%s, whose migration came to nothing: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
