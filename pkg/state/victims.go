package state

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// victimCandidates is how many cores of a class, from the tightest fit on, are compared for the cheapest set among those where one, two
// or all victims would do.
const victimCandidates = 64

// VictimPlan is the cheapest way to make room for a server by evicting pods.
type VictimPlan struct {
	Node    string
	Core    int
	Victims []ServerView
	// Verdict is the core's test without the victims.
	Verdict rt.Verdict

	loss int64
}

// Pods are the UIDs of the pods that would go.
func (p VictimPlan) Pods() []types.UID {
	var out []types.UID
	for _, v := range p.Victims {
		if !slices.Contains(out, v.PodUID) {
			out = append(out, v.PodUID)
		}
	}
	return out
}

// Victims finds the servers of strictly lower criticality that cost least (rt.Loss) and whose claims would have to go so
// that the server finds a core. Cores where one, two or all such servers would do are found by index; of each kind 64 of a class are
// compared. ok is false when no victims would do, or none are needed.
func (s *Snapshot) Victims(server rt.Server, accept ...NodeFilter) (plan VictimPlan, ok bool) {
	if server.Criticality == rt.Low {
		return VictimPlan{}, false
	}
	look := search{snapshot: s, server: server, accept: accept}
	for level := range victimLevels {
		if p, found := look.cheapest(int(server.Criticality)-1, level); found && (!ok || p.cheaper(plan)) {
			plan, ok = p, true
		}
	}
	return plan, ok && len(plan.Victims) > 0
}

// cheapest compares cores where the level's number of victims would do.
func (q *search) cheapest(below, level int) (best VictimPlan, found bool) {
	for _, shelf := range q.snapshot.index.classes {
		need, reason := q.snapshot.needs(q.server, shelf.class)
		if reason != "" {
			continue
		}
		left := victimCandidates
		for key := range shelf.reach[below][level].from(byBandwidth{ppm: bounded(need)}) {
			plan, ok := q.victimsOn(coreRef(key))
			if !ok {
				continue
			}
			if !found || plan.cheaper(best) {
				best, found = plan, true
			}
			if left--; left == 0 {
				break
			}
		}
	}
	return best, found
}

func (q *search) victimsOn(ref coreRef) (VictimPlan, bool) {
	n, ok := q.snapshot.NodeView(ref.node.name)
	if !ok || !q.accepts(n) {
		return VictimPlan{}, false
	}
	core, ok := n.Core(int(ref.core))
	if !ok {
		return VictimPlan{}, false
	}
	load := n.Claims(core)
	plan := VictimPlan{Node: n.Name, Core: core.ID}
	var candidates []rt.Candidate
	for _, o := range load.Servers {
		if v, ok := n.Server(o.ID); ok && v.McKube != nil && o.Criticality < q.server.Criticality { // no reservations, nor what has no pod to evict
			charge := o.Charge(load.Granularity)
			candidates = append(candidates, rt.Candidate{ID: o.ID, Loss: rt.Loss(o.Criticality, charge), Size: charge})
		}
	}
	gone, ok := rt.LeastLoss(candidates, func(gone []rt.Candidate) bool {
		return rt.Admit(core.Core, staying(load.Servers, gone), q.server).Admitted
	})
	if !ok {
		return VictimPlan{}, false
	}
	for _, g := range gone {
		plan.loss += g.Loss
		if victim, ok := n.Server(g.ID); ok {
			plan.Victims = append(plan.Victims, *victim)
		}
	}
	plan.Verdict = rt.Admit(core.Core, staying(load.Servers, gone), q.server)
	return plan, true
}

// staying are the servers but for those gone.
func staying(servers []rt.Server, gone []rt.Candidate) []rt.Server {
	return slices.DeleteFunc(slices.Clone(servers), func(o rt.Server) bool {
		return slices.ContainsFunc(gone, func(g rt.Candidate) bool { return g.ID == o.ID })
	})
}

// cheaper compares plans; those that cost the same by node and core.
func (p VictimPlan) cheaper(o VictimPlan) bool {
	return cmp.Or(cmp.Compare(p.loss, o.loss), cmp.Compare(p.Node, o.Node), cmp.Compare(p.Core, o.Core)) < 0
}
