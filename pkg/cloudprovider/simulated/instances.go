package simulated

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A machine exists while its Node does, or, before the Node has joined, while its NodeClaim is
// launched and not registered; and in either case not after an interruption has taken it away.

// Get returns the machine with a provider ID, or NodeClaimNotFoundError.
func (p *Provider) Get(ctx context.Context, id string) (*karpv1.NodeClaim, error) {
	name, ours := nodeOf(id)
	if !ours {
		return nil, gone(id)
	}
	claim := &karpv1.NodeClaim{}
	if err := p.client.Get(ctx, types.NamespacedName{Name: claimOf(name)}, claim); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("finding machine %s: %w", id, err)
	}
	known := claim.Status.ProviderID == id
	if known && takenAway(claim, p.clock.Now()) {
		return nil, gone(id)
	}
	node := &corev1.Node{}
	err := p.client.Get(ctx, types.NamespacedName{Name: name}, node)
	switch {
	case err == nil:
		return machineOfNode(node), nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("finding machine %s: %w", id, err)
	case known && awaited(claim):
		return machineOfClaim(claim), nil
	default:
		return nil, gone(id)
	}
}

// List returns every machine once.
func (p *Provider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	if err := p.client.List(ctx, claims); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := p.client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	var machines []*karpv1.NodeClaim
	settled := map[string]bool{} // provider IDs that are decided on
	for i := range claims.Items {
		claim := &claims.Items[i]
		if takenAway(claim, p.clock.Now()) {
			settled[claim.Status.ProviderID] = true
		}
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if _, ours := nodeOf(node.Spec.ProviderID); ours && !settled[node.Spec.ProviderID] {
			settled[node.Spec.ProviderID] = true
			machines = append(machines, machineOfNode(node))
		}
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if awaited(claim) && !settled[claim.Status.ProviderID] {
			machines = append(machines, machineOfClaim(claim))
		}
	}
	return machines, nil
}

// Delete ends a machine. Its Node, if it has joined without being registered yet, is deleted; a
// registered one is being deleted by Karpenter already. The machine is gone when Delete returns,
// which it says with NodeClaimNotFoundError.
func (p *Provider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	name, ours := nodeOf(claim.Status.ProviderID)
	if !ours {
		return gone(claim.Status.ProviderID)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := p.client.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Node of machine %s: %w", claim.Status.ProviderID, err)
	}
	return gone(claim.Status.ProviderID)
}

func gone(id string) error {
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("no machine %q", id))
}

// awaited tells whether a NodeClaim's machine is launched and has not joined.
func awaited(claim *karpv1.NodeClaim) bool {
	_, ours := nodeOf(claim.Status.ProviderID)
	return ours && !claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue()
}

// takenAway tells whether an interruption has ended a NodeClaim's machine.
func takenAway(claim *karpv1.NodeClaim, now time.Time) bool {
	at, announced := terminateAt(claim)
	return announced && !now.Before(at)
}

// terminateAt is when an interruption ends a NodeClaim's machine, if one was announced.
func terminateAt(claim *karpv1.NodeClaim) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, claim.Annotations[v1alpha1.AnnotationTerminateAt])
	return at, err == nil
}

func machineOfNode(node *corev1.Node) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, Annotations: node.Annotations, CreationTimestamp: node.CreationTimestamp},
		Status: karpv1.NodeClaimStatus{
			NodeName:    node.Name,
			ProviderID:  node.Spec.ProviderID,
			Capacity:    node.Status.Capacity,
			Allocatable: node.Status.Allocatable,
		},
	}
}

func machineOfClaim(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: claim.Labels, Annotations: claim.Annotations, CreationTimestamp: claim.CreationTimestamp},
		Status: karpv1.NodeClaimStatus{
			ProviderID:  claim.Status.ProviderID,
			ImageID:     claim.Status.ImageID,
			Capacity:    claim.Status.Capacity,
			Allocatable: claim.Status.Allocatable,
		},
	}
}
