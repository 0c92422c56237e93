package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Create claims the cheapest free machine that meets the NodeClaim's requirements and returns its ID at once; it is
// switched on afterwards. The machine that has been claimed for the NodeClaim already is returned again. It returns
// InsufficientCapacityError when no machine is free, NodeClassNotReadyError when the node class is not ready.
func (p *Provider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	class, err := p.readyNodeClass(ctx, claim)
	if err != nil {
		return nil, err
	}
	p.claims.Lock()
	defer p.claims.Unlock()
	// Not from the cache: a machine that was claimed a moment ago must not look free.
	listed, err := selected(ctx, p.Reader, class)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(listed, func(m *Machine) bool { return holds(m, claim) }); i >= 0 {
		return p.launched(claim, listed[i]), nil
	}
	if name := claim.Annotations[v1alpha1.AnnotationAdopt]; name != "" {
		return p.adopt(ctx, claim, name, listed)
	}
	wanted, err := p.choices(ctx, claim, listed)
	if err != nil {
		return nil, err
	}
	for _, m := range wanted {
		taken, err := p.take(ctx, claim, m, false)
		if err != nil {
			return nil, err
		}
		if taken {
			return p.launched(claim, m), nil
		}
	}
	return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("%s, and none that is free meets the requirements", census(listed)))
}

// adopt claims the machine that the NodeClaim was made for.
func (p *Provider) adopt(ctx context.Context, claim *karpv1.NodeClaim, name string, listed []*Machine) (*karpv1.NodeClaim, error) {
	for _, m := range listed {
		if m.Name != name || m.Status.Claim != nil {
			continue
		}
		taken, err := p.take(ctx, claim, m, true)
		if err != nil {
			return nil, err
		}
		if taken {
			return p.launched(claim, m), nil
		}
	}
	return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("machine %q cannot be adopted any more", name))
}

// holds tells whether the machine is claimed for the NodeClaim.
func holds(m *Machine, claim *karpv1.NodeClaim) bool {
	return m.Status.Claim != nil && m.Status.Claim.UID == claim.UID
}

func (p *Provider) readyNodeClass(ctx context.Context, claim *karpv1.NodeClaim) (*nodeclass.InventoryNodeClass, error) {
	class, err := p.nodeClassOf(ctx, claim.Spec.NodeClassRef)
	switch {
	case err != nil:
		return nil, err
	case class == nil:
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("there is no InventoryNodeClass %q", claim.Spec.NodeClassRef.Name))
	}
	if ready := class.StatusConditions(status.WithObservedOnly()).Get(status.ConditionReady); ready != nil && ready.IsFalse() {
		return nil, cloudprovider.NewNodeClassNotReadyError(errors.New(ready.Message))
	}
	return class, nil
}

// choices are the machines that the NodeClaim may have, the preferred first: cheap ones, then those that draw less.
func (p *Provider) choices(ctx context.Context, claim *karpv1.NodeClaim, listed []*Machine) ([]*Machine, error) {
	prices, err := p.launchPrices(ctx, claim)
	if err != nil {
		return nil, err
	}
	var found []*Machine
	for _, m := range listed {
		if _, ok := prices[p.offering(m)]; ok && claimable(m) {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b *Machine) int {
		return cmp.Or(
			cmp.Compare(prices[p.offering(a)], prices[p.offering(b)]),
			cmp.Compare(maxWatts(a), maxWatts(b)),
		)
	})
	return found, nil
}

// offering names a machine's instance type and reservation.
func (p *Provider) offering(m *Machine) string { return reservationID(p.offer.names.of(m), m) }

func maxWatts(m *Machine) float64 {
	if m.Spec.Watts == nil {
		return 0
	}
	return m.Spec.Watts.Max.AsFloat64Slow()
}

// launchPrices are the prices of the offerings that meet the NodeClaim's requirements, by reservation.
func (p *Provider) launchPrices(ctx context.Context, claim *karpv1.NodeClaim) (map[string]float64, error) {
	view, err := p.launchTypes(ctx, claim)
	if err != nil {
		return nil, fmt.Errorf("reading prices: %w", err)
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	prices := map[string]float64{}
	for _, it := range view {
		if !wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) ||
			!resources.Fits(claim.Spec.Resources.Requests, it.Allocatable()) {
			continue
		}
		for _, of := range it.Offerings.Compatible(wanted) {
			prices[of.ReservationID()] = of.Price
		}
	}
	return prices, nil
}

// launchTypes are the instance types for the NodeClaim's NodePool at the prices to launch at. A NodeClaim on its own
// is offered what its node class selects.
func (p *Provider) launchTypes(ctx context.Context, claim *karpv1.NodeClaim) ([]*cloudprovider.InstanceType, error) {
	nodePool := &karpv1.NodePool{}
	err := p.Client.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.NodePoolLabelKey]}, nodePool)
	if apierrors.IsNotFound(err) || claim.Labels[karpv1.NodePoolLabelKey] == "" {
		return p.GetInstanceTypes(ctx, &karpv1.NodePool{Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{NodeClassRef: claim.Spec.NodeClassRef}},
		}})
	}
	if err != nil {
		return nil, err
	}
	return p.prices.GetInstanceTypes(ctx, nodePool)
}

// take records the claim on the machine. It returns false when another was faster, and changes m only when it was not.
func (p *Provider) take(ctx context.Context, claim *karpv1.NodeClaim, m *Machine, adopted bool) (bool, error) {
	now := metav1.NewTime(p.Clock.Now())
	changed := m.DeepCopy()
	changed.Status.Claim = &v1alpha1.MachineClaim{
		NodeClaim: claim.Name, UID: claim.UID, NodePool: claim.Labels[karpv1.NodePoolLabelKey],
		Reservation: p.offering(m), Adopted: adopted, Time: now, Stage: v1alpha1.StageStarting, StageTime: now,
	}
	setAvailable(changed, now.Time, verdict{v1alpha1.ReasonMachineClaimed, "NodeClaim " + claim.Name + " has the machine"})
	// The machine's resource version goes along, so that of two claims one is refused.
	err := p.Client.Status().Update(ctx, changed)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claiming machine %q: %w", m.Name, err)
	}
	*m = *changed
	return true, nil
}

// launched is the answer to Create: everything that Karpenter records on the NodeClaim.
func (p *Provider) launched(claim *karpv1.NodeClaim, m *Machine) *karpv1.NodeClaim {
	name := p.offer.names.of(m)
	it := newInstanceType(name, []*Machine{m}, p.offer.names.keys)
	labels := maps.Clone(claim.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, m.Spec.Labels)
	for key, r := range it.Requirements {
		if r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
			labels[key] = r.Any()
		}
	}
	labels[v1alpha1.LabelMachine] = m.Name
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: labels, Annotations: map[string]string{
			v1alpha1.AnnotationPricePerHour: strconv.FormatFloat(priceOf(m), 'f', -1, 64),
		}},
		Status: karpv1.NodeClaimStatus{ProviderID: ProviderID(m.Name), Capacity: it.Capacity, Allocatable: it.Allocatable()},
	}
}
