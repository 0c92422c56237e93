package inventory

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

const (
	// MachineChanged is the reason of a NodeClaim whose machine was edited since it was claimed, so that it is not what
	// the scheduler takes it for.
	MachineChanged cloudprovider.DriftReason = "MachineChanged"
	// MachineNotSelected is the reason of a NodeClaim whose node class does not select its machine any more.
	MachineNotSelected cloudprovider.DriftReason = "MachineNotSelected"
)

// IsDrifted compares a NodeClaim with its machine and its node class as they are now.
func (p *Provider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	m, err := p.machine(ctx, p.Client, claim.Status.ProviderID)
	if err != nil || m == nil || !holds(m, claim) {
		return "", err
	}
	if p.offer.names.of(m) != claim.Labels[corev1.LabelInstanceTypeStable] {
		return MachineChanged, nil
	}
	class, err := p.nodeClassOf(ctx, claim.Spec.NodeClassRef)
	if err != nil || class == nil {
		return "", err
	}
	selector, err := selectorOf(class)
	if err != nil {
		return "", err
	}
	if !selector.Matches(labels.Set(m.Labels)) {
		return MachineNotSelected, nil
	}
	return "", nil
}
