package rtruntime

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// The scheduler and adoption give cores away from caches of their own, and each may do so before it sees what the
// other did. The API server refuses neither, so who comes second is found out afterwards: here.

// settling is how old, in whole seconds of the API server, a held claim is before it pays for a budget: the
// scheduler's claim on the same room, if any, is seen by then.
const settling = 2 * time.Second

// overbooking are the claims of a node that give way. Nil is none.
type overbooking map[types.UID]bool

// overbooked finds the cores whose claims together are more than the core has, and of them the claims that
// the controller holds, the youngest first, until the rest fits. Those of the scheduler never give way.
func overbooked(n *state.NodeView) overbooking {
	var out overbooking
	for i := range n.Cores {
		core := &n.Cores[i]
		if core.Claimed <= core.Capacity { // never less than its claims
			continue
		}
		for _, claim := range heldOn(n, core.ID) {
			if out.without(n, core) {
				break
			}
			if out == nil {
				out = overbooking{}
			}
			out[claim.UID] = true
		}
	}
	return out
}

// heldOn are the claims on a core that the controller holds for containers, the youngest first, so that a
// container's further claims come before its first.
func heldOn(n *state.NodeView, core int) []*state.ClaimView {
	var out []*state.ClaimView
	for i := range n.Servers {
		s := &n.Servers[i]
		if s.Witness != core || s.Claimant() {
			continue
		}
		out = append(out, slices.DeleteFunc(claimsOf(s), func(c *state.ClaimView) bool { return !c.Held })...)
	}
	slices.SortFunc(out, func(a, b *state.ClaimView) int {
		return cmp.Or(b.Created.Compare(a.Created.Time), cmp.Compare(b.Name, a.Name), cmp.Compare(b.Namespace, a.Namespace))
	})
	return out
}

// claimsOf are the claims of a server that take bandwidth from its core.
func claimsOf(s *state.ServerView) []*state.ClaimView {
	if !s.Claim.Allocated() {
		return nil
	}
	out := []*state.ClaimView{s.Claim}
	for _, f := range s.Further {
		if f.Node == s.Claim.Node && f.Core == s.Claim.Core {
			out = append(out, f)
		}
	}
	return out
}

// without tells whether a core has room for its claims but those that give way: by their sum, as the
// scheduler counts, or by a test of the core that admits more.
func (o overbooking) without(n *state.NodeView, core *state.CoreView) bool {
	rest, sum := state.NodeView{}, rt.PPM(0)
	for i := range n.Servers {
		s := n.Servers[i]
		if s.Witness != core.ID || o[s.Claim.UID] {
			continue
		}
		for _, c := range o.of(&s) {
			s.Claimed -= c.Claimed
		}
		sum += s.Claimed
		rest.Servers = append(rest.Servers, s)
	}
	return sum <= core.Capacity || rt.Holds(core.Core, rest.Claims(core).Servers).Admitted
}

// of are the claims of a server that give way, its first one last.
func (o overbooking) of(s *state.ServerView) []*state.ClaimView {
	if len(o) == 0 || s.Claimant() {
		return nil
	}
	out := slices.DeleteFunc(claimsOf(s), func(c *state.ClaimView) bool { return !o[c.UID] })
	slices.Reverse(out)
	return out
}

// firmly is a server with what its claims pay for. Claims that give way pay for nothing, and young held claims do not
// pay yet. It returns the time after which they do. A clock that is far from the API server's makes no server wait.
func firmly(s *state.ServerView, over overbooking, now time.Time) (*state.ServerView, time.Duration) {
	firm, wait := *s, time.Duration(0)
	for _, c := range claimsOf(s) {
		age := now.Sub(c.Created.Time)
		switch {
		case over[c.UID]:
			firm.Claimed -= c.Claimed
		case c.Held && age < settling && age > -settling:
			firm.Claimed -= c.Claimed
			wait = max(wait, settling-age)
		}
	}
	return &firm, wait
}
