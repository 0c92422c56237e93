package driver

import (
	"cmp"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// backendBlocked is the backend of a node on which no container can become real-time.
const backendBlocked = "blocked"

// Offer is what a node offers to claims.
type Offer struct {
	// Backend that enforces budgets.
	Backend string
	// Cores that take claims, ascending.
	Cores []rt.Core
	// Unfit are cores that the fast path governs and that take no new claims now, with the reason.
	Unfit map[int]string
}

// OfferOf is what the fast path's report and the machine as it is now come to. reserve is kept of each
// core's capacity for raising Limited servers, where the backend can keep what it promises to them. Cores that are offline or have no capacity are left out, and all while the kernel enforces nothing;
// those that somebody isolated for himself, or reserved, the fast path has not. A core that broke what was promised stays: a defect of ours in the
// past says nothing of its capacity now, and its health tells (see Driver.takeOffer).
//
// At least one online core must be left to the host: everything that is no real-time container, the
// kubelet and this agent first, would be starved where all cores may be filled. The error then says so,
// with the flag, and nothing is offered.
func OfferOf(report table.Report, machine []host.Core, reserve rt.PPM) (Offer, error) {
	offer := Offer{Backend: report.Backend, Unfit: map[int]string{}}
	if report.Backend == "" || report.Backend == backendBlocked {
		return offer, nil
	}
	if err := housekeeping(report.Cores, machine); err != nil {
		return Offer{Backend: report.Backend, Unfit: offer.Unfit}, err
	}
	if !rt.KeepsLimited(report.Backend) {
		reserve = 0
	}
	for _, c := range report.Cores {
		place, known := find(machine, c.ID)
		capacity := min(rt.PPM(c.CapacityPpm), rt.MaxCapacity) - reserve
		switch {
		case !known:
			offer.Unfit[c.ID] = "the machine has no such core"
		case !place.Online:
			offer.Unfit[c.ID] = "it is offline"
		case report.Unenforced != "":
			offer.Unfit[c.ID] = report.Unenforced
		case capacity <= 0:
			offer.Unfit[c.ID] = fmt.Sprintf("its capacity of %d ppm leaves nothing beyond the escalation reserve of %d ppm (--escalation-reserve-ppm)", c.CapacityPpm, reserve)
		default:
			offer.Cores = append(offer.Cores, rt.Core{
				ID: c.ID, NUMA: max(0, place.NUMA), Sibling: siblingOf(machine, place), Capacity: capacity, EscalationReserve: reserve,
				Granularity: report.GranularityUs, Policy: rt.PolicyOf(report.Backend),
			})
		}
	}
	slices.SortFunc(offer.Cores, func(a, b rt.Core) int { return cmp.Compare(a.ID, b.ID) })
	return offer, nil
}

// housekeeping says when no online core is left to the host.
func housekeeping(governed []table.CoreReport, machine []host.Core) error {
	online := 0
	for _, c := range machine {
		if !c.Online {
			continue
		}
		online++
		if !slices.ContainsFunc(governed, func(g table.CoreReport) bool { return g.ID == c.ID }) {
			return nil
		}
	}
	if online == 0 || len(governed) == 0 {
		return nil
	}
	return fmt.Errorf("all %d online cores are given to real-time work; keep at least one for the host, by --reserved-cores or by leaving it out of --cores", online)
}

// siblingOf is the core's other thread while that is online.
func siblingOf(machine []host.Core, c host.Core) int {
	if s, ok := find(machine, c.Sibling); ok && s.Online && s.ID != c.ID {
		return s.ID
	}
	return rt.NoSibling
}

func find(machine []host.Core, id int) (host.Core, bool) {
	i := slices.IndexFunc(machine, func(c host.Core) bool { return c.ID == id })
	if i < 0 {
		return host.Core{}, false
	}
	return machine[i], true
}

// Devices of the offer, in the order of the cores: the scheduler takes the first that fits.
func (o Offer) Devices() []resourcev1.Device {
	out := make([]resourcev1.Device, len(o.Cores))
	for i, c := range o.Cores {
		out[i] = rtdra.Device(c, o.Backend)
	}
	return out
}

// Core of the offer by its number.
func (o Offer) Core(id int) (rt.Core, bool) {
	i := slices.IndexFunc(o.Cores, func(c rt.Core) bool { return c.ID == id })
	if i < 0 {
		return rt.Core{}, false
	}
	return o.Cores[i], true
}
