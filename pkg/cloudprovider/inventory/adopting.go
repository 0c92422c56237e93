package inventory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// adoption decides what becomes of a machine whose Node is there without a NodeClaim of ours, and makes the NodeClaim
// where spec.adoptInto asks for it. Karpenter then has Create claim the machine, as for any NodeClaim, and registers
// the Node by its provider ID; nothing is switched.
func (c *machines) adoption(ctx context.Context, m *Machine, node *corev1.Node) (verdict, error) {
	if m.Spec.AdoptInto == "" {
		return verdict{v1alpha1.ReasonMachineJoinedByHand, fmt.Sprintf("Node %q is there without a NodeClaim; spec.adoptInto names no NodePool for it", node.Name)}, nil
	}
	nodePool, why, err := c.adopter(ctx, m, node)
	if err != nil {
		return verdict{}, err
	}
	if why != "" {
		return verdict{v1alpha1.ReasonMachineNotAdoptable, why}, nil
	}
	if err := c.identify(ctx, m, node); err != nil {
		return verdict{}, err
	}
	claim := adoptingNodeClaim(m, nodePool)
	if err := c.Client.Create(ctx, claim); client.IgnoreAlreadyExists(err) != nil {
		return verdict{}, fmt.Errorf("creating NodeClaim: %w", err)
	} else if err == nil {
		c.Recorder.Publish(adoptingEvent(m, claim))
	}
	return verdict{v1alpha1.ReasonMachineAdopting, "NodeClaim " + claim.Name + " takes the machine over"}, nil
}

// adopter finds the NodePool that is to take the machine over, or says why it cannot.
func (c *machines) adopter(ctx context.Context, m *Machine, node *corev1.Node) (*karpv1.NodePool, string, error) {
	nodePool := &karpv1.NodePool{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: m.Spec.AdoptInto}, nodePool); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Sprintf("there is no NodePool %q", m.Spec.AdoptInto), nil
		}
		return nil, "", fmt.Errorf("getting NodePool: %w", err)
	}
	switch {
	case !nodePool.DeletionTimestamp.IsZero():
		return nil, fmt.Sprintf("NodePool %q is being deleted", nodePool.Name), nil
	case !node.DeletionTimestamp.IsZero():
		return nil, fmt.Sprintf("Node %q is being deleted", node.Name), nil
	case !isNodeOf(m, node):
		return nil, fmt.Sprintf("Node %q has provider ID %q, which cannot be changed; it must be %q", node.Name, node.Spec.ProviderID, ProviderID(m.Name)), nil
	case !ready(node):
		return nil, fmt.Sprintf("Node %q is not Ready", node.Name), nil
	}
	why, err := c.unfit(ctx, m, nodePool)
	return nodePool, why, err
}

// unfit says why the NodePool would not have opened the machine itself; empty when it would.
func (c *machines) unfit(ctx context.Context, m *Machine, nodePool *karpv1.NodePool) (string, error) {
	ref := nodePool.Spec.Template.Spec.NodeClassRef
	if ref.Kind != nodeclass.Kind {
		return fmt.Sprintf("NodePool %q has node class %s %q; it must be an %s", nodePool.Name, ref.Kind, ref.Name, nodeclass.Kind), nil
	}
	class := &nodeclass.InventoryNodeClass{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("there is no InventoryNodeClass %q", ref.Name), nil
		}
		return "", fmt.Errorf("getting node class: %w", err)
	}
	selector, err := selectorOf(class)
	if err != nil {
		return "", err
	}
	if !selector.Matches(labels.Set(m.Labels)) {
		return fmt.Sprintf("InventoryNodeClass %q does not select the machine", class.Name), nil
	}
	it := newInstanceType(c.names.of(m), []*Machine{m}, c.names.keys)
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(nodePool.Spec.Template.Labels).Values()...)
	if err := it.Requirements.Intersects(wanted); err != nil {
		return fmt.Sprintf("NodePool %q does not take the machine: %s", nodePool.Name, err), nil
	}
	return "", nil
}

// adoptingNodeClaim is the NodeClaim of a NodePool for a machine that has joined. Its name follows from both, so that
// there is one. It asks for no startup taints: the Node has started.
func adoptingNodeClaim(m *Machine, nodePool *karpv1.NodePool) *karpv1.NodeClaim {
	claim := nodePool.Spec.Template.ToNodeClaim()
	claim.Name = nodePool.Name + "-" + m.Name
	claim.Labels = merged(claim.Labels, map[string]string{
		karpv1.NodePoolLabelKey: nodePool.Name,
		karpv1.NodeClassLabelKey(claim.Spec.NodeClassRef.GroupKind()): claim.Spec.NodeClassRef.Name,
	})
	claim.Annotations = merged(claim.Annotations, map[string]string{
		v1alpha1.AnnotationAdopt:                m.Name,
		karpv1.NodePoolHashAnnotationKey:        nodePool.Hash(),
		karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion,
	})
	claim.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: nodeClaimVersion, Kind: "NodePool", Name: nodePool.Name, UID: nodePool.UID, BlockOwnerDeletion: ptr.To(true),
	}}
	claim.Spec.StartupTaints = nil
	return claim
}

func merged(list ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range list {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
