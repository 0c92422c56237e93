package simulated

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// target is what a fault's selector is matched against.
type target struct {
	nodePool, instanceType, zone, capacityType, nodeClaim string
}

func targetOf(claim *karpv1.NodeClaim) target {
	return target{
		nodePool:     claim.Labels[karpv1.NodePoolLabelKey],
		instanceType: claim.Labels[corev1.LabelInstanceTypeStable],
		zone:         claim.Labels[corev1.LabelTopologyZone],
		capacityType: claim.Labels[karpv1.CapacityTypeLabelKey],
		nodeClaim:    claim.Name,
	}
}

// selects tells whether a fault's selector chooses a target.
func selects(s v1alpha1.FaultSelector, t target) bool {
	return among(s.NodePools, t.nodePool) && among(s.NodeClaims, t.nodeClaim) && selectsOffering(s, t)
}

// selectsOffering looks only at what is known of a machine that is not there yet.
func selectsOffering(s v1alpha1.FaultSelector, t target) bool {
	return among(s.InstanceTypes, t.instanceType) && among(s.Zones, t.zone) && among(s.CapacityTypes, t.capacityType)
}

func among(allowed []string, value string) bool {
	return len(allowed) == 0 || slices.Contains(allowed, value)
}

// struckBy tells whether one of the shortages takes an offering off the list.
func struckBy(shortages []v1alpha1.SimulatedFault, t target) bool {
	return slices.ContainsFunc(shortages, func(f v1alpha1.SimulatedFault) bool { return selectsOffering(f.Spec.Selector, t) })
}

// expiry is when a fault ends by itself; false for one that lasts until it is deleted.
func expiry(f *v1alpha1.SimulatedFault) (time.Time, bool) {
	if f.Spec.Duration == nil {
		return time.Time{}, false
	}
	return f.CreationTimestamp.Add(f.Spec.Duration.Duration), true
}

// lasts tells whether a fault is still there and its time is not over. It may be exhausted.
func lasts(f *v1alpha1.SimulatedFault, now time.Time) bool {
	end, ends := expiry(f)
	return f.DeletionTimestamp.IsZero() && (!ends || now.Before(end))
}

// limit is how many NodeClaims a fault may strike; false for no bound but MaxAffected.
func limit(f *v1alpha1.SimulatedFault) (int, bool) {
	if f.Spec.Count != nil {
		return int(*f.Spec.Count), true
	}
	if f.Spec.Type == v1alpha1.FaultSpotInterruption || f.Spec.Type == v1alpha1.FaultNodeFailure {
		return 1, true
	}
	return v1alpha1.MaxAffected, false
}

// room is how many more NodeClaims a fault may strike.
func room(f *v1alpha1.SimulatedFault) int {
	most, _ := limit(f)
	return max(0, most-len(f.Status.Affected))
}

// struck tells whether a fault has a NodeClaim on its list.
func struck(f *v1alpha1.SimulatedFault, claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(f.Status.Affected, func(a v1alpha1.AffectedNodeClaim) bool { return a.UID == claim.UID })
}

// faults reads SimulatedFaults, and records what they strike.
type faults struct {
	client client.Client
	clock  clock.Clock
}

// of lists the faults of the given types that last, by name. The result shares memory with the
// cache: it is for reading.
func (f *faults) of(ctx context.Context, types ...v1alpha1.FaultType) ([]v1alpha1.SimulatedFault, error) {
	list := &v1alpha1.SimulatedFaultList{}
	if err := f.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing simulated faults: %w", err)
	}
	now := f.clock.Now()
	var found []v1alpha1.SimulatedFault
	for i := range list.Items {
		fault := &list.Items[i]
		if slices.Contains(types, fault.Spec.Type) && lasts(fault, now) {
			found = append(found, *fault)
		}
	}
	slices.SortFunc(found, func(a, b v1alpha1.SimulatedFault) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// shortages lists the shortages that take offerings off the list for a NodePool: those without a
// count.
func (f *faults) shortages(ctx context.Context, nodePool string) ([]v1alpha1.SimulatedFault, error) {
	all, err := f.of(ctx, v1alpha1.FaultShortage)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s v1alpha1.SimulatedFault) bool {
		return s.Spec.Count != nil || !among(s.Spec.Selector.NodePools, nodePool)
	}), nil
}

// strikes tells whether a fault applies to a NodeClaim. Where the fault counts, the NodeClaim is on
// its list before the answer is yes, so that a fault strikes no more NodeClaims than its count
// however often the process restarts.
func (f *faults) strikes(ctx context.Context, fault *v1alpha1.SimulatedFault, claim *karpv1.NodeClaim) (bool, error) {
	if _, counted := limit(fault); !counted || struck(fault, claim) {
		return true, nil
	}
	if room(fault) == 0 {
		return false, nil
	}
	updated := fault.DeepCopy()
	record(updated, claim, f.clock.Now())
	if err := f.client.Status().Update(ctx, updated); err != nil {
		return false, fmt.Errorf("recording that fault %q strikes NodeClaim %q: %w", fault.Name, claim.Name, err)
	}
	return true, nil
}

// record puts a NodeClaim on a fault's list.
func record(f *v1alpha1.SimulatedFault, claim *karpv1.NodeClaim, now time.Time) {
	f.Status.Affected = append(f.Status.Affected, v1alpha1.AffectedNodeClaim{Name: claim.Name, UID: claim.UID, Time: metav1.NewTime(now)})
	f.Status.AffectedCount = int32(len(f.Status.Affected))
}
