package migration

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// hopeful tells whether a copy may yet be restored from the state of a source that has ended, although its action is over, as no
// controller ran in time: the state is nowhere else.
func (m *migrate) hopeful(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if nc.Spec.Stage != v1alpha1.StageRestore || spoilt(nc) != "" || emptied(task, source, nc) == "" {
		return false, nil
	}
	if twin == nil || twin.DeletionTimestamp != nil || finished(twin) || halted(twin) {
		return false, nil
	}
	if why, err := m.unmade(ctx, nc, twin, toRestore(nc)); why != "" || err != nil {
		return false, err
	}
	gone, err := m.lost(ctx, nc.Spec.TargetNode)
	return !gone, err
}

// extendGrace gives such a copy as long as the replacement of a source that has gone. It tells whether that time is not over.
func (m *migrate) extendGrace(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if may, err := m.hopeful(ctx, task, source, twin, nc); !may || err != nil {
		return false, err
	}
	until, err := m.keepUntil(ctx, nc)
	return err == nil && m.Clock.Now().Before(until), err
}

// graceMessage says which copy has that time; it is empty if none has.
func (m *migrate) graceMessage(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (string, error) {
	source, err := m.read(ctx, m.API, task.Object.Spec.Pods[0])
	if err != nil {
		return "", err
	}
	twin, err := m.copied(ctx, m.API, task)
	if err != nil {
		return "", err
	}
	may, err := m.hopeful(ctx, task, source, twin, nc)
	if !may || err != nil {
		return "", err
	}
	return fmt.Sprintf("the source has ended, and its action is over; its state is kept on node %s for pod %s/%s, which has still to go on with it", nc.Spec.TargetNode, twin.Namespace, twin.Name), nil
}

// unsaved is what is lost of a migration whose time was over before a controller saw that its source had ended, so that its action does
// not say it. It is empty if nothing is lost. A copy that was restored, or may yet be, has been reported by then.
func (r *Reconciler) unsaved(ctx context.Context, o *v1alpha1.PodMigration, action *v1alpha1.RTAction) (string, error) {
	if o.Status.Strategy != v1alpha1.StrategyCheckpoint || !touched(o) || outcome(phaseOf(action), action.Status.Unwanted, action.Status.Progress) != v1alpha1.MigrationFailed {
		return "", nil
	}
	nc := &v1alpha1.NodeCheckpoint{}
	if err := r.API.Get(ctx, types.NamespacedName{Name: action.Name}, nc); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading NodeCheckpoint %s: %w", action.Name, err)
	}
	why := action.Status.Progress[progressEmptied]
	if side := nc.Status.Source; side != nil && side.Disturbance == v1alpha1.CheckpointEnded {
		why = cmp.Or(why, fmt.Sprintf("the source has ended while it stood still: node %s: %s", nc.Spec.SourceNode, side.Message))
	}
	if why == "" || nc.Spec.Stage.GivenUp() {
		return "", nil
	}
	if nc.Name == "" { // all is done, and a copy that is there is there to stay
		if replacement, err := r.successor(ctx, o); replacement != nil || err != nil {
			return "", err
		}
	}
	return why, nil
}

// successor is the pod that goes on with a migration's state; nil: none does.
func (r *Reconciler) successor(ctx context.Context, o *v1alpha1.PodMigration) (*corev1.Pod, error) {
	if o.Status.Source == nil {
		return nil, nil
	}
	list := &corev1.PodList{}
	if err := r.API.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", o.Namespace, err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Annotations[annotationReplaces] == string(o.Status.Source.PodUID) && p.UID != o.Status.Source.PodUID && p.DeletionTimestamp == nil && ofState(p, "") {
			return p, nil
		}
	}
	return nil, nil
}
