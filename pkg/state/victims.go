package state

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// victimCandidates is how many cores, from the tightest fit on, are compared for the cheapest set once
// the smallest number of victims is known.
const victimCandidates = 64

// VictimPlan is the cheapest way to make room for a server by evicting pods.
type VictimPlan struct {
	Node    string
	Core    int
	Victims []ServerView
	// Verdict is the core's test without the victims.
	Verdict rt.Verdict
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

// Victims finds the cheapest servers of strictly lower criticality whose claims would have to go so
// that the server finds a core: as few as possible, then of the lowest criticality, then of the
// smallest bandwidth. Cores where one, two or all such servers would do are found by index, in this
// order. One and two are the smallest numbers there are under EDF; of the cores where they would do, 64 are
// compared. ok is false when no victims would do, or none are needed.
func (s *Snapshot) Victims(server rt.Server, accept ...NodeFilter) (plan VictimPlan, ok bool) {
	if server.Criticality == rt.Low {
		return VictimPlan{}, false
	}
	look := search{snapshot: s, server: server, accept: accept}
	for level := range victimLevels {
		if plan, ok = look.cheapest(int(server.Criticality)-1, level); ok {
			return plan, len(plan.Victims) > 0
		}
	}
	return VictimPlan{}, false
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
			if !found || plan.cheaper(best, shelf.granularity) {
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
	for i := range load.Servers {
		if v, ok := n.Server(load.Servers[i].ID); !ok || v.McKube == nil {
			load.Servers[i].Criticality = rt.High // reservations, and what has no pod to evict
		}
	}
	gone, ok := rt.Victims(load, q.server)
	if !ok {
		return VictimPlan{}, false
	}
	plan := VictimPlan{Node: n.Name, Core: core.ID}
	for _, g := range gone {
		if victim, ok := n.Server(g.ID); ok {
			plan.Victims = append(plan.Victims, *victim)
		}
	}
	left := slices.DeleteFunc(load.Servers, func(o rt.Server) bool {
		return slices.ContainsFunc(gone, func(g rt.Server) bool { return g.ID == o.ID })
	})
	plan.Verdict = rt.Admit(core.Core, left, q.server)
	return plan, plan.Verdict.Admitted
}

// cheaper compares plans as rt.Victims compares sets; equal ones by node and core.
func (p VictimPlan) cheaper(o VictimPlan, granularity int64) bool {
	return cmp.Or(
		cmp.Compare(len(p.Victims), len(o.Victims)),
		slices.Compare(p.criticalities(), o.criticalities()),
		cmp.Compare(p.bandwidth(granularity), o.bandwidth(granularity)),
		cmp.Compare(p.Node, o.Node), cmp.Compare(p.Core, o.Core),
	) < 0
}

func (p VictimPlan) criticalities() []rt.Criticality {
	out := make([]rt.Criticality, len(p.Victims))
	for i, v := range p.Victims {
		out[i] = v.Criticality
	}
	slices.SortFunc(out, func(a, b rt.Criticality) int { return cmp.Compare(b, a) })
	return out
}

func (p VictimPlan) bandwidth(granularity int64) rt.PPM {
	total := rt.PPM(0)
	for _, v := range p.Victims {
		total += v.charge(granularity)
	}
	return total
}
