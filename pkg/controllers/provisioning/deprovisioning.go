package provisioning

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/controller"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/deprovisioning"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

// DeprovisioningDependencies are the collaborators of Deprovisioning. All are required.
type DeprovisioningDependencies struct {
	// Client reads from a cache.
	Client        client.Client
	CloudProvider cloudprovider.CloudProvider
	Cluster       *state.Cluster
}

// Deprovisioning deletes NodeClaims that a static NodePool has too many of, as Karpenter's controller does, but counts none that is being replaced.
// Karpenter's disruption queue marks such a NodeClaim before it creates the replacement. Its cluster state takes the mark off at the next update of the
// NodeClaim, as of the condition that says why it is replaced. The replacement then counts as one too many, and Karpenter v1.15.0 deletes it.
type Deprovisioning struct {
	DeprovisioningDependencies
	karpenter *static.Controller
}

// NewDeprovisioning makes one around Karpenter's.
func NewDeprovisioning(d DeprovisioningDependencies, karpenter *static.Controller) *Deprovisioning {
	return &Deprovisioning{DeprovisioningDependencies: d, karpenter: karpenter}
}

var _ controller.Controller = (*Deprovisioning)(nil)

// Register implements controller.Controller. It watches what Karpenter's controller watches.
func (d *Deprovisioning) Register(_ context.Context, m manager.Manager) error {
	never := func(event.DeleteEvent) bool { return false }
	return ctrl.NewControllerManagedBy(m).
		Named(d.karpenter.Name()).
		For(&karpv1.NodePool{}, builder.WithPredicates(nodepool.IsManagedPredicateFuncs(d.CloudProvider), nodepool.IsStaticPredicateFuncs(), predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return static.HasNodePoolReplicaCountChanged(e.ObjectOld.(*karpv1.NodePool), e.ObjectNew.(*karpv1.NodePool))
			},
			DeleteFunc: never,
		})).
		Watches(&karpv1.NodeClaim{}, nodepool.NodeClaimEventHandler(nodepool.WithClient(m.GetClient()), nodepool.WithStaticOnly), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: never,
		})).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: staticAtOnce}).
		Complete(reconcile.AsReconciler(m.GetClient(), d))
}

// Reconcile deletes the NodeClaims that a NodePool has too many of.
func (d *Deprovisioning) Reconcile(ctx context.Context, pool *karpv1.NodePool) (reconcile.Result, error) {
	list := &karpv1.NodeClaimList{}
	if err := d.Client.List(ctx, list, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the NodeClaims of NodePool %s: %w", pool.Name, err)
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.DeletionTimestamp == nil && claim.StatusConditions().IsTrue(karpv1.ConditionTypeDisruptionReason) {
			d.Cluster.NodePoolState.MarkNodeClaimPendingDisruption(pool.Name, claim.Name)
		}
	}
	return d.karpenter.Reconcile(ctx, pool)
}
