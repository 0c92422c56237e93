package rtruntime

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// mostForced is how many pods of a node are tried, one at a time, where the cheapest that must go for its cores are not all that is in
	// the way, and mostWidened how many on all nodes together.
	mostForced  = 16
	mostWidened = 128
)

// wider is the cheapest room on a node that has everything else as well, where the room that is cheapest for the cores
// alone does not. A pod that keeps the preemptor off otherwise (by a port, by affinity, by what it requests) goes, and
// then every other pod that has to. left is how many candidates may still be tried.
func (s scene) wider(n *state.NodeView, left *int) (best room, found bool) {
	for i, c := range s.lesser(n) {
		if i == mostForced || *left == 0 {
			break
		}
		without := s
		without.leaving, without.forced = s.leaving.with(types.UID(c.ID)), []types.UID{types.UID(c.ID)}
		r, ok := without.on(n)
		if !ok {
			continue
		}
		r = r.and(n, c)
		if found && r.costs(best) >= 0 {
			continue
		}
		*left--
		if s.has(r) {
			best, found = r, true
		}
	}
	return best, found
}

// lesser are the pods of a node that may go and are less critical than the comer, the cheapest first.
func (s scene) lesser(n *state.NodeView) []rt.Candidate {
	var out []rt.Candidate
	for uid, c := range s.candidates(n) {
		if c.criticality < criticalityOf(s.pod) && !s.leaving[uid] {
			out = append(out, c.Candidate)
		}
	}
	slices.SortFunc(out, func(a, b rt.Candidate) int { return cmp.Or(cmp.Compare(a.Loss, b.Loss), strings.Compare(a.ID, b.ID)) })
	return out
}

// and has one more pod of the node go.
func (r room) and(n *state.NodeView, c rt.Candidate) room {
	r.Victims, r.Loss = append(r.Victims, types.UID(c.ID)), r.Loss+c.Loss
	slices.Sort(r.Victims)
	r.Servers = nil
	for _, v := range n.Servers {
		if slices.Contains(r.Victims, v.PodUID) {
			r.Servers = append(r.Servers, v)
		}
	}
	return r
}
