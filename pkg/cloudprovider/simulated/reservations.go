package simulated

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// reservations counts the use of reserved capacity. The NodeClaims are the books: one that bears a
// reservation's ID holds one machine of it. Launches that are decided but not on their NodeClaim
// yet are kept in memory; a process that dies forgets them, and then Karpenter decides them anew.
type reservations struct {
	client   client.Client
	capacity map[string]int // by reservation ID

	mu      sync.Mutex
	decided map[types.UID]string // NodeClaim to reservation ID
}

func newReservations(c client.Client, capacity map[string]int) *reservations {
	return &reservations{client: c, capacity: capacity, decided: map[types.UID]string{}}
}

// reservedCapacity reads the size of every reservation from the offerings.
func reservedCapacity(types []*cloudprovider.InstanceType) (map[string]int, error) {
	capacity := map[string]int{}
	for _, it := range types {
		for _, of := range it.Offerings {
			if of.CapacityType() != karpv1.CapacityTypeReserved {
				continue
			}
			id, named := of.Requirements[v1alpha1.LabelReservationID]
			if !named || id.Operator() != corev1.NodeSelectorOpIn || id.Len() != 1 {
				return nil, fmt.Errorf("instance type %q has a reserved offering that requires no one value of %s; name its reservation there", it.Name, v1alpha1.LabelReservationID)
			}
			capacity[id.Any()] = of.ReservationCapacity
		}
	}
	return capacity, nil
}

// inUse counts the machines in use by reservation ID.
func (r *reservations) inUse(ctx context.Context) (map[string]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count(ctx, "")
}

// take books one machine of a reservation for a NodeClaim, and tells whether one was free. What was
// decided for the NodeClaim before is forgotten.
func (r *reservations) take(ctx context.Context, claim types.UID, id string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.decided, claim)
	used, err := r.count(ctx, claim)
	if err != nil {
		return false, err
	}
	if used[id] >= r.capacity[id] {
		return false, nil
	}
	r.decided[claim] = id
	return true, nil
}

// count adds up NodeClaims and decisions, leaving out one NodeClaim, and drops decisions that are
// on their NodeClaim by now or whose NodeClaim is gone. The caller holds the lock.
func (r *reservations) count(ctx context.Context, without types.UID) (map[string]int, error) {
	claims := &karpv1.NodeClaimList{}
	if err := r.client.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("counting reserved machines: %w", err)
	}
	used := map[string]int{}
	waiting := map[types.UID]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		id := reservationOf(claim)
		if decided := r.decided[claim.UID]; id == "" && decided != "" {
			waiting[claim.UID] = decided
			id = decided
		}
		if id != "" && claim.UID != without {
			used[id]++
		}
	}
	r.decided = waiting
	return used, nil
}

// reservationOf is the reservation that a launched NodeClaim runs in, or "".
func reservationOf(claim *karpv1.NodeClaim) string {
	if claim.Labels[karpv1.CapacityTypeLabelKey] != karpv1.CapacityTypeReserved {
		return ""
	}
	return claim.Labels[v1alpha1.LabelReservationID]
}
