package migration

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// leftoverEvery is how often NodeCheckpoints are looked at whose action is not over.
const leftoverEvery = 15 * time.Second

// Leftovers ends NodeCheckpoints whose action is over, or gone. A rollback may have taken longer than it had, as with a copy on a node
// that no longer answers, or the source may have stayed beside a copy that serves. The source is stopped until that is done.
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

// Reconcile looks at one NodeCheckpoint. That its action is over only the API server may say; while it is not, that is not asked.
func (l *Leftovers) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var nc *v1alpha1.NodeCheckpoint
	var action *v1alpha1.RTAction
	for _, from := range []client.Reader{l.Client, l.API} {
		nc, action = &v1alpha1.NodeCheckpoint{}, &v1alpha1.RTAction{}
		if err := from.Get(ctx, req.NamespacedName, nc); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		of := nc.Labels[v1alpha1.LabelMigrationAction]
		if of == "" {
			return reconcile.Result{}, nil
		}
		switch err := from.Get(ctx, types.NamespacedName{Name: of}, action); {
		case client.IgnoreNotFound(err) != nil:
			return reconcile.Result{}, fmt.Errorf("reading action %s: %w", of, err)
		case err == nil && !rules.Phase(action.Status.Phase).Over():
			return reconcile.Result{RequeueAfter: leftoverEvery}, nil
		}
	}
	done, err := l.end(ctx, taskOf(action, nc), nc)
	switch {
	case apierrors.IsConflict(err) || err == nil && !done:
		return reconcile.Result{RequeueAfter: again}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// taskOf builds a task from what is left of an action that is over, or is gone.
func taskOf(action *v1alpha1.RTAction, nc *v1alpha1.NodeCheckpoint) orchestration.Task {
	o := action.DeepCopy()
	o.Name, o.Spec.Node, o.Spec.TargetNode = nc.Labels[v1alpha1.LabelMigrationAction], nc.Spec.SourceNode, nc.Spec.TargetNode
	o.Spec.Pods = []v1alpha1.ActionPod{{Namespace: nc.Spec.PodNamespace, Name: nc.Spec.PodName, UID: nc.Spec.PodUID}}
	progress := map[string]string{progressCut: time.Time{}.Format(time.RFC3339Nano)}
	maps.Copy(progress, o.Status.Progress)
	progress[progressStrategy] = string(v1alpha1.StrategyCheckpoint)
	return orchestration.Task{Object: o, Progress: progress}
}

// end tells whether neither the agents nor the API server hold anything of the migration any longer.
func (l *Leftovers) end(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	m := newMigrate(l.Dependencies)
	if kept, err := m.replacementTemplate(ctx, task, nc); err != nil {
		return false, err
	} else if kept != nil {
		return l.continueHandover(ctx, task, nc, kept)
	}
	switch nc.Spec.Stage {
	case v1alpha1.StageHandOver: // the source has gone
		return m.relinquish(ctx, nc)
	case v1alpha1.StageRelease:
		if gone, err := m.dismissed(ctx, task); !gone || err != nil {
			return false, err
		}
		return m.forgetAll(ctx, task, nc)
	case v1alpha1.StageRestore:
		if left, err := l.deserted(ctx, task, nc); !left || err != nil {
			return false, err
		}
	}
	if err := m.stage(ctx, nc, v1alpha1.StageDiscard); err != nil {
		return false, err
	}
	return m.forgetAll(ctx, task, nc)
}

// deserted tells whether no copy goes on with the state, or ever will, and none is left. Where one does, the source is to go.
func (l *Leftovers) deserted(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	m := newMigrate(l.Dependencies)
	twin, err := m.copied(ctx, l.API, task)
	if err != nil {
		return false, err
	}
	source, err := m.read(ctx, l.API, task.Object.Spec.Pods[0])
	if err != nil {
		return false, err
	}
	if serves(task, twin, nc) || alone(task, source, twin, nc) {
		return false, m.stage(ctx, nc, v1alpha1.StageRelease)
	}
	if kept, err := m.extendGrace(ctx, task, source, twin, nc); kept || err != nil {
		return false, err
	}
	return l.alone(ctx, task, source, nc)
}

// forgetAll does so, and then takes away what was stored of a pod in the source's place.
func (m *migrate) forgetAll(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if err := m.unstore(ctx, task); err != nil {
		return false, err
	}
	return m.forget(ctx, nc)
}

// dismissed removes a source that would stay stopped for ever. It tells whether the source is gone and its ReplicaSet owns the copy. If
// there is no copy, a source that no owner would recreate stays.
func (m *migrate) dismissed(ctx context.Context, task orchestration.Task) (bool, error) {
	twin, err := m.copied(ctx, m.API, task)
	if err != nil {
		return false, err
	}
	source, err := m.read(ctx, m.API, task.Object.Spec.Pods[0])
	if err != nil {
		return false, err
	}
	copied := twin != nil && twin.DeletionTimestamp == nil
	switch {
	case source == nil && copied:
		result, done, err := m.restoreOwner(ctx, task, twin)
		return done || result.Outcome.Over(), err
	case source == nil || !copied && metav1.GetControllerOf(source) == nil:
		return true, nil
	case !copied:
		_, err = m.evictStopped(ctx, task, source)
	default:
		_, err = m.dismiss(ctx, task, source, twin)
	}
	return false, err
}

// alone deletes the action's own copy of the source, and tells whether no pod with the source's state is left. It leaves alone what
// another action has created in the source's place: a pod with the state keeps the source stopped, and other pods do not count. A pod
// whose node is gone from the API runs no longer.
func (l *Leftovers) alone(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	m := newMigrate(l.Dependencies)
	list := &corev1.PodList{}
	if err := l.API.List(ctx, list, client.InNamespace(nc.Spec.PodNamespace)); err != nil {
		return false, fmt.Errorf("listing pods of namespace %s: %w", nc.Spec.PodNamespace, err)
	}
	alone := true
	for i := range list.Items {
		p := &list.Items[i]
		own := p.Name == ownName(task) || ofState(p, nc.UID)
		if p.Annotations[annotationReplaces] != string(nc.Spec.PodUID) || p.UID == nc.Spec.PodUID || !own && (source == nil || !ofState(p, "")) {
			continue
		}
		gone, err := m.lost(ctx, p.Spec.NodeName)
		if err != nil {
			return false, err
		}
		if p.Spec.NodeName == "" || !gone {
			alone = false
		}
		if p.DeletionTimestamp != nil || !own {
			continue
		}
		if err := l.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID}, client.GracePeriodSeconds(briefly)); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting pod %s/%s, whose migration came to nothing: %w", p.Namespace, p.Name, err)
		}
	}
	return alone, nil
}
