package provisioning

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/opened"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// kept is how long a node that was opened for an action waits for real-time work before it is consolidated as any
	// other empty node: who asked for it still has to move pods there.
	kept = 5 * time.Minute
	// tending is how often it is looked after such nodes: a nomination, which keeps a node, holds for twice that at least.
	tending = 5 * time.Second
)

// KeeperDependencies are the collaborators of the loop. All are required.
type KeeperDependencies struct {
	Clock clock.PassiveClock
	// Client reads from a cache, Reader from the API server.
	Client  client.Client
	Reader  client.Reader
	Cluster Nominator
	Store   *state.Store
}

// Nominator is Karpenter's cluster state. A node that was nominated for a pod is not disrupted for a while.
type Nominator interface {
	NominateNodeForPod(ctx context.Context, providerID string)
}

// NewKeeper makes the loop that looks after nodes opened for actions: they are kept until the pods that they are for
// have come, but not for ever, and those of actions that came to nothing are closed, replacements among them, or left
// to themselves where pods run. Such a one is left only by a process that was cut off in the middle of its request,
// which took effect after the action had been undone.
func NewKeeper(d KeeperDependencies) controller.Controller { return &keeper{d} }

type keeper struct{ KeeperDependencies }

// Register implements controller.Controller.
func (k *keeper) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("provisioning.keeper").
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(k))
}

// Reconcile looks after every node that was opened for an action.
func (k *keeper) Reconcile(ctx context.Context) (reconciler.Result, error) {
	if k.Store.Synced() != nil {
		return reconciler.Result{RequeueAfter: tending}, nil //nolint:nilerr // not a fault: what is missing comes
	}
	list := &karpv1.NodeClaimList{}
	if err := k.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return reconciler.Result{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	var failed []error
	for i := range list.Items {
		if claim := &list.Items[i]; claim.Annotations[v1alpha1.AnnotationAction] != "" && claim.DeletionTimestamp.IsZero() {
			failed = append(failed, k.tend(ctx, claim))
		}
	}
	return reconciler.Result{RequeueAfter: tending}, errors.Join(failed...)
}

// tend keeps the node of a NodeClaim, closes it, or leaves it to itself.
func (k *keeper) tend(ctx context.Context, claim *karpv1.NodeClaim) error {
	action := &v1alpha1.RTAction{}
	err := k.Client.Get(ctx, types.NamespacedName{Name: claim.Annotations[v1alpha1.AnnotationAction]}, action)
	replacement := rules.Kind(action.Spec.Kind) == rules.ReplaceNode
	switch {
	case apierrors.IsNotFound(err):
		return nil // it is long over
	case err != nil:
		return fmt.Errorf("reading the action of NodeClaim %s: %w", claim.Name, err)
	case claimName(action) != claim.Name && !replacement || inUse(k.Store.Snapshot(), claim):
		return nil
	}
	switch phase := rules.Phase(action.Status.Phase); {
	case replacement && (phase != rules.RolledBack && phase != rules.Withdrawn && phase != rules.Expired): // Karpenter's queue has it
	case phase == rules.Running, phase == rules.Succeeded && k.Clock.Since(action.Status.PhaseTime.Time) < kept:
		k.Cluster.NominateNodeForPod(ctx, claim.Status.ProviderID)
	case phase.Over() && phase != rules.Succeeded:
		if _, err := opened.Discard(ctx, k.Client, k.Reader, claim); err != nil {
			return fmt.Errorf("action %s is %s: %w", action.Name, phase, err)
		}
	}
	return nil
}
