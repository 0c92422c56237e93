package simulated

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// kwokPartition is the one partition of simulated kubelets.
const kwokPartition = "a"

// Create decides which machine a NodeClaim gets and returns at once: the cheapest available
// offering, at the prices of the view given to LaunchAtPricesOf, that meets the NodeClaim's
// requirements. Among equally cheap ones the NodeClaim's UID decides, which spreads machines over
// zones and gives the same answer again.
//
// It makes nothing outside the answer. A decision that Karpenter had begun to record on the
// NodeClaim when the process died is repeated, not taken anew. It returns
// InsufficientCapacityError when nothing can be had, NodeClassNotReadyError when the node class is
// not ready.
func (p *Provider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	nodeClass, err := p.nodeClass(ctx, claim)
	if err != nil {
		return nil, err
	}
	types, err := p.launchTypes(ctx, claim)
	if err != nil {
		return nil, fmt.Errorf("reading prices: %w", err)
	}
	if claim.Annotations[v1alpha1.AnnotationInstance] == providerID(claim) {
		if c, ok := recorded(claim, types); ok {
			return launched(claim, nodeClass, c), nil
		}
	}
	c, err := p.decide(ctx, claim, types)
	if err != nil {
		return nil, err
	}
	return launched(claim, nodeClass, c), nil
}

func (p *Provider) nodeClass(ctx context.Context, claim *karpv1.NodeClaim) (*kwokapi.KWOKNodeClass, error) {
	nodeClass := &kwokapi.KWOKNodeClass{}
	if err := p.client.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("resolving node class: %w", err))
		}
		return nil, fmt.Errorf("resolving node class: %w", err)
	}
	if ready := nodeClass.StatusConditions().Get(status.ConditionReady); ready.IsFalse() {
		return nil, cloudprovider.NewNodeClassNotReadyError(errors.New(ready.Message))
	}
	return nodeClass, nil
}

// launchTypes are the instance types for the NodeClaim's NodePool at the prices to launch at. A
// NodeClaim without NodePool is offered everything at the catalogue's prices, because NodeOverlays
// are evaluated by NodePool.
func (p *Provider) launchTypes(ctx context.Context, claim *karpv1.NodeClaim) ([]*cloudprovider.InstanceType, error) {
	nodePool := &karpv1.NodePool{}
	err := p.client.Get(ctx, types.NamespacedName{Name: claim.Labels[karpv1.NodePoolLabelKey]}, nodePool)
	if apierrors.IsNotFound(err) || claim.Labels[karpv1.NodePoolLabelKey] == "" {
		return p.own.GetInstanceTypes(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	return p.prices.GetInstanceTypes(ctx, nodePool)
}

// decide takes the first choice that no shortage and no full reservation stands in the way of.
func (p *Provider) decide(ctx context.Context, claim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) (choice, error) {
	counted, err := p.faults.of(ctx, v1alpha1.FaultShortage)
	if err != nil {
		return choice{}, err
	}
	for _, c := range choices(claim, types) {
		refused, err := p.refuse(ctx, counted, claim, c)
		if err != nil {
			return choice{}, err
		}
		if refused != "" {
			return choice{}, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("launching %s: refused by SimulatedFault %q", c, refused))
		}
		free, err := p.reserve(ctx, claim, c)
		if err != nil {
			return choice{}, err
		}
		if free {
			return c, nil
		}
	}
	return choice{}, cloudprovider.NewInsufficientCapacityError(
		fmt.Errorf("none of %d instance types has an available offering that meets the requirements", len(types)))
}

// refuse returns the name of the counted shortage that a launch falls victim to, or "".
func (p *Provider) refuse(ctx context.Context, shortages []v1alpha1.SimulatedFault, claim *karpv1.NodeClaim, c choice) (string, error) {
	t := c.target()
	t.nodePool = claim.Labels[karpv1.NodePoolLabelKey]
	for i := range shortages {
		if shortages[i].Spec.Count == nil || !selects(shortages[i].Spec.Selector, t) {
			continue
		}
		strikes, err := p.faults.strikes(ctx, &shortages[i], claim)
		if err != nil {
			return "", err
		}
		if strikes {
			return shortages[i].Name, nil
		}
	}
	return "", nil
}

// reserve books a machine where the choice is a reserved one.
func (p *Provider) reserve(ctx context.Context, claim *karpv1.NodeClaim, c choice) (bool, error) {
	if c.offering.CapacityType() != karpv1.CapacityTypeReserved {
		return true, nil
	}
	return p.reservations.take(ctx, claim.UID, c.offering.Requirements.Get(v1alpha1.LabelReservationID).Any())
}

// launched is the answer to Create: everything that Karpenter records on the NodeClaim and that the
// Node is made from later.
func launched(claim *karpv1.NodeClaim, nodeClass *kwokapi.KWOKNodeClass, c choice) *karpv1.NodeClaim {
	annotations := map[string]string{
		kwokapi.KwokLabelKey:            kwokapi.KwokLabelValue,
		v1alpha1.AnnotationInstance:     providerID(claim),
		v1alpha1.AnnotationPricePerHour: strconv.FormatFloat(c.offering.Price, 'f', -1, 64),
	}
	image := nodeClass.Annotations[v1alpha1.AnnotationImage]
	if image != "" {
		annotations[v1alpha1.AnnotationImage] = image
	}
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: launchedLabels(claim, c), Annotations: annotations},
		Status: karpv1.NodeClaimStatus{
			ProviderID:  providerID(claim),
			ImageID:     image,
			Capacity:    c.instanceType.Capacity,
			Allocatable: c.instanceType.Allocatable(),
		},
	}
}

// launchedLabels are the labels of a machine: what the NodeClaim, the instance type and the
// offering leave only one value for.
func launchedLabels(claim *karpv1.NodeClaim, c choice) map[string]string {
	labels := maps.Clone(claim.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, requirements := range []scheduling.Requirements{
		scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...),
		c.instanceType.Requirements,
		c.offering.Requirements,
	} {
		for key, r := range requirements {
			if r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
				labels[key] = r.Any()
			}
		}
	}
	labels[kwokapi.NodeViewerLabelKey] = strconv.FormatFloat(c.offering.Price, 'f', 6, 64)
	labels[kwokapi.KwokPartitionLabelKey] = kwokPartition
	labels[kwokapi.KwokLabelKey] = kwokapi.KwokLabelValue
	labels[corev1.LabelHostname] = hostname(nodeName(claim.Name, claim.UID))
	return labels
}
