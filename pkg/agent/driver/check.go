package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// ErrOverbooked is a core of which claims hold more than there is.
var ErrOverbooked = errors.New("overbooked")

// RecordOf is what preparing the claim on the node comes to. Devices of other drivers in it are theirs. The
// error names what makes the claim foreign or stale.
func RecordOf(claim *resourcev1.ResourceClaim, node string) (Record, error) {
	r := Record{
		Version: recordVersion, UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name,
		PodClaim: claim.Annotations[resourcev1.PodResourceClaimAnnotation], Pods: reservedFor(claim),
	}
	switch {
	case !validUID(claim.UID):
		return r, fmt.Errorf("claim %s/%s has the UID %q; want letters, digits and dashes", claim.Namespace, claim.Name, claim.UID)
	case claim.Status.Allocation == nil:
		return r, fmt.Errorf("claim %s/%s was not given a core, or that was taken back", claim.Namespace, claim.Name)
	case len(r.Pods) == 0:
		return r, fmt.Errorf("claim %s/%s is not reserved for any pod", claim.Namespace, claim.Name)
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != v1alpha1.DriverCPU {
			continue
		}
		share, err := shareOf(result, node)
		if err != nil {
			return r, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		r.Shares = append(r.Shares, share)
	}
	if len(r.Shares) == 0 {
		return r, fmt.Errorf("claim %s/%s has no device of driver %s", claim.Namespace, claim.Name, v1alpha1.DriverCPU)
	}
	return r, nil
}

func reservedFor(claim *resourcev1.ResourceClaim) []types.UID {
	var pods []types.UID
	for _, c := range claim.Status.ReservedFor {
		if c.APIGroup == "" && c.Resource == "pods" {
			pods = append(pods, c.UID)
		}
	}
	return pods
}

func shareOf(result resourcev1.DeviceRequestAllocationResult, node string) (Share, error) {
	if result.Pool != node {
		return Share{}, fmt.Errorf("device %s is in pool %q, that of another node; this is %q", result.Device, result.Pool, node)
	}
	core, ok := coreNumber(result.Device)
	if !ok {
		return Share{}, fmt.Errorf("device %q is not of this driver; want core-<number>", result.Device)
	}
	s := Share{Request: result.Request, Pool: result.Pool, Device: result.Device, Core: core, ShareID: result.ShareID}
	if bandwidth, ok := result.ConsumedCapacity[v1alpha1.CapacityRTBandwidth]; ok {
		s.PPM = bandwidth.Value()
	}
	return s, s.validate()
}

// coreNumber reads a device's name as rtdra.DeviceName writes it, and no other spelling.
func coreNumber(device string) (int, bool) {
	core := 0
	if _, err := fmt.Sscanf(device, "core-%d", &core); err != nil || core < 0 || rtdra.DeviceName(core) != device {
		return 0, false
	}
	return core, true
}

// Admits says why a claim cannot be prepared on the offered cores beside those that are; nil when it can. It fails
// closed: a core that is offline or no longer offered takes no claim, whatever the scheduler knew. The
// error is ErrOverbooked when the prepared claims leave no room.
func (o Offer) Admits(r Record, prepared map[types.UID]Record) error {
	for _, core := range r.Cores() {
		offered, ok := o.Core(core)
		if !ok {
			return fmt.Errorf("claim %s/%s is on core %d, which takes no claims: %s", r.Namespace, r.Name, core,
				cmp.Or(o.Unfit[core], "it is reserved, isolated or not governed by the fast path of this node"))
		}
		if err := room(offered, r, prepared); err != nil {
			return err
		}
	}
	return nil
}

// room checks the scheduler's sum once more. Nobody else does between it and the container.
func room(core rt.Core, r Record, prepared map[types.UID]Record) error {
	used, holders := rt.PPM(0), []string(nil)
	for uid, other := range prepared {
		if ppm := taken(other, core); uid != r.UID && ppm > 0 {
			used += ppm
			holders = append(holders, fmt.Sprintf("%s/%s (%d)", other.Namespace, other.Name, ppm))
		}
	}
	need := taken(r, core)
	if used+need <= core.Capacity {
		return nil
	}
	slices.Sort(holders)
	return fmt.Errorf("%w: claim %s/%s takes %d ppm of core %d, which has %d, and of that others hold %d: %s", ErrOverbooked,
		r.Namespace, r.Name, need, core.ID, core.Capacity, used, strings.Join(holders, ", "))
}

// taken is what a claim takes of a core.
func taken(r Record, core rt.Core) rt.PPM {
	total := rt.PPM(0)
	for _, s := range r.Shares {
		if s.Core != core.ID {
			continue
		}
		if s.PPM <= 0 {
			return core.Capacity
		}
		total += rt.PPM(s.PPM)
	}
	return total
}

// stale says why a prepared claim is no longer what it was; empty while it is. now is the claim of its name
// as the API server has it, nil when there is none.
func stale(r Record, now *resourcev1.ResourceClaim) string {
	switch {
	case now == nil:
		return "the claim is gone"
	case now.UID != r.UID:
		return "another claim has its name"
	case now.Status.Allocation == nil:
		return "its core was taken back"
	}
	pods := reservedFor(now)
	if !slices.ContainsFunc(r.Pods, func(uid types.UID) bool { return slices.Contains(pods, uid) }) {
		return "its pods are gone"
	}
	return ""
}
