package simulated

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Reboot gives the Node a new boot ID, as Karpenter's kwok provider does, and mends what a
// NodeFailure has broken, as a reboot would. It can be repeated.
func (p *Provider) Reboot(ctx context.Context, claim *karpv1.NodeClaim, operationID string) error {
	if err := p.CloudProvider.Reboot(ctx, claim, operationID); err != nil {
		return fmt.Errorf("rebooting the machine of NodeClaim %q: %w", claim.Name, err)
	}
	node := &corev1.Node{}
	if err := p.client.Get(ctx, types.NamespacedName{Name: claim.Status.NodeName}, node); err != nil {
		return fmt.Errorf("rebooting the machine of NodeClaim %q: %w", claim.Name, err)
	}
	return p.kubelets.mend(ctx, node)
}
