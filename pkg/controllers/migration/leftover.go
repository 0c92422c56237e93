package migration

import (
	"context"
	"fmt"
	"time"

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

// leftoverEvery is how often NodeCheckpoints are looked at whose action is not over.
const leftoverEvery = 15 * time.Second

// Leftovers ends NodeCheckpoints whose action is over, or gone: a rollback may have taken longer than it had, as of a copy on a node that no longer
// answered. The source stands still until that is done.
type Leftovers struct {
	Dependencies
}

// Register adds the loop to a manager.
func (l *Leftovers) Register(_ context.Context, m manager.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelMigrationAction] != "" })
	return controllerruntime.NewControllerManagedBy(m).
		Named("migration.leftovers").
		For(&v1alpha1.NodeCheckpoint{}, builder.WithPredicates(ours)).
		Complete(l)
}

// Reconcile looks at one NodeCheckpoint.
func (l *Leftovers) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nc := &v1alpha1.NodeCheckpoint{}
	if err := l.API.Get(ctx, req.NamespacedName, nc); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	of := nc.Labels[v1alpha1.LabelMigrationAction]
	if of == "" {
		return reconcile.Result{}, nil
	}
	action := &v1alpha1.RTAction{}
	switch err := l.API.Get(ctx, types.NamespacedName{Name: of}, action); {
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("reading action %s: %w", of, err)
	case err == nil && !rules.Phase(action.Status.Phase).Over():
		return reconcile.Result{RequeueAfter: leftoverEvery}, nil
	}
	done, err := l.end(ctx, nc)
	switch {
	case apierrors.IsConflict(err) || err == nil && !done:
		return reconcile.Result{RequeueAfter: again}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// end tells whether nobody holds anything of it any longer.
func (l *Leftovers) end(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	m := &migrate{Dependencies: l.Dependencies}
	switch nc.Spec.Stage {
	case v1alpha1.StageHandOver, v1alpha1.StageRelease: // the source has gone, or is to go
		return m.relinquish(ctx, nc)
	case v1alpha1.StageRestore:
		if alone, err := l.alone(ctx, nc); !alone || err != nil {
			return false, err
		}
	}
	if err := m.stage(ctx, nc, v1alpha1.StageDiscard); err != nil {
		return false, err
	}
	return m.forget(ctx, nc)
}

// alone takes copies of the source away, and tells whether there are none. One whose node is gone from the API runs no longer.
func (l *Leftovers) alone(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	m := &migrate{Dependencies: l.Dependencies}
	list := &corev1.PodList{}
	if err := l.API.List(ctx, list, client.InNamespace(nc.Spec.PodNamespace)); err != nil {
		return false, fmt.Errorf("listing pods of namespace %s: %w", nc.Spec.PodNamespace, err)
	}
	alone := true
	for i := range list.Items {
		p := &list.Items[i]
		if p.Annotations[annotationReplaces] != string(nc.Spec.PodUID) || p.UID == nc.Spec.PodUID {
			continue
		}
		gone, err := m.lost(ctx, p.Spec.NodeName)
		if err != nil {
			return false, err
		}
		if p.Spec.NodeName == "" || !gone {
			alone = false
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if err := l.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID}, client.GracePeriodSeconds(briefly)); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting pod %s/%s, whose migration came to nothing: %w", p.Namespace, p.Name, err)
		}
	}
	return alone, nil
}
