package rtruntime

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// place is a core of a node.
type place struct {
	node string
	core int
}

// uids is a set of pods.
type uids map[types.UID]bool

func (u uids) with(more ...types.UID) uids {
	out := maps.Clone(u)
	if out == nil {
		out = uids{}
	}
	for _, uid := range more {
		out[uid] = true
	}
	return out
}

// scene is what room for a pod may be made of.
type scene struct {
	snapshot *state.Snapshot
	pod      *state.PodView
	// leaving pods will give their cores back without further doing. patient: so will those that are
	// being deleted.
	leaving uids
	patient bool
	// spared pods are no victims; keepAll spares everybody.
	spared  uids
	keepAll bool
	// promised cores are for the pods of other plans.
	promised map[place]bool
	// otherwise tells whether the node would have everything else that the pod asks for, once some pods
	// have gone. It is asked last. nil: always.
	otherwise func(node string, gone uids) bool
}

// room is where the containers of a pod fit once some pods have gone.
type room struct {
	Node string
	// Cores are those of the pod's containers, in the order of their names.
	Cores []int
	// Victims are the pods that must go, Servers their containers.
	Victims []types.UID
	Servers []state.ServerView

	bandwidth rt.PPM
}

// want is a container that needs a core, by its place among the pod's governed containers.
type want struct {
	rt.Server
	index int
}

// wanted lists the containers that have no core yet, as they choose: the most critical first, then the largest.
func wanted(pod *state.PodView, granularity int64) []want {
	var out []want
	for i, g := range pod.Governed {
		if g.Err == nil && !g.Claim.Allocated() {
			out = append(out, want{g.Server, i})
		}
	}
	slices.SortFunc(out, func(a, b want) int {
		return cmp.Or(cmp.Compare(b.Criticality, a.Criticality), cmp.Compare(b.Charge(granularity), a.Charge(granularity)), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// criticalityOf is the highest of the pod's governed containers, as the webhook sees it; Low for none.
func criticalityOf(pod *state.PodView) rt.Criticality {
	highest := rt.Low
	for _, g := range pod.Governed {
		if g.Err == nil {
			highest = max(highest, g.Server.Criticality)
		}
	}
	return highest
}

// cheapest is the room that costs least: fewest containers, then the lowest criticality, then the smallest
// bandwidth, then the first by name. Every core of every node is looked at; for pods with several
// containers each chooses in turn, so their set is cheap but not always the cheapest.
func (s scene) cheapest() (best room, found bool) {
	for n := range s.snapshot.Nodes() {
		r, ok := s.on(n)
		if !ok || (found && r.costs(best) >= 0) {
			continue
		}
		if s.otherwise == nil || s.otherwise(n.Name, s.leaving.with(r.Victims...)) {
			best, found = r, true
		}
	}
	return best, found
}

// fits tells whether the pod fits somewhere without more victims.
func (s scene) fits() bool {
	s.keepAll = true
	_, ok := s.cheapest()
	return ok
}

// fitsOn tells the same of one node.
func (s scene) fitsOn(node string) bool {
	s.keepAll = true
	n, ok := s.snapshot.NodeView(node)
	if !ok {
		return false
	}
	if _, ok := s.on(n); !ok {
		return false
	}
	return s.otherwise == nil || s.otherwise(node, s.leaving)
}

// on is the cheapest room on a node.
func (s scene) on(n *state.NodeView) (room, bool) {
	if ok, _ := s.snapshot.Accepts(n, s.pod); !ok || !n.Offered || s.boundElsewhere(n.Name) {
		return room{}, false
	}
	r := room{Node: n.Name, Cores: make([]int, len(s.pod.Governed))}
	for i, g := range s.pod.Governed {
		r.Cores[i] = rt.NoCore
		if g.Claim.Allocated() {
			r.Cores[i] = g.Claim.Core
		}
	}
	loads := s.loads(n)
	for _, w := range wanted(s.pod, s.snapshot.Granularity()) {
		at, victims, ok := s.choose(n, loads, w.Server)
		if !ok {
			return room{}, false
		}
		r.evict(n, victims)
		loads = without(loads, n, victims)
		loads[at].Servers = append(loads[at].Servers, w.Server)
		r.Cores[w.index] = loads[at].ID
	}
	return r, true
}

// boundElsewhere: a claim of the pod was given a core of another node.
func (s scene) boundElsewhere(node string) bool {
	return slices.ContainsFunc(s.pod.Governed, func(g state.Governed) bool {
		return g.Claim.Allocated() && g.Claim.Node != node
	})
}

// loads are the cores that the pod's claims match, as the scheduler counts them, without what leaves. Who
// must stay is given the highest criticality, so that nobody may displace it.
func (s scene) loads(n *state.NodeView) []rt.Load {
	var out []rt.Load
	for i := range n.Cores {
		core := &n.Cores[i]
		if core.Granularity > s.snapshot.Granularity() || s.promised[place{n.Name, core.ID}] {
			continue
		}
		load := n.Claims(core)
		load.Servers = slices.DeleteFunc(load.Servers, func(o rt.Server) bool {
			v, ok := n.Server(o.ID)
			return ok && s.leaves(v)
		})
		for j := range load.Servers {
			load.Servers[j].Criticality = s.standing(n, load.Servers[j].ID)
		}
		out = append(out, load)
	}
	return out
}

// leaves tells whether a server gives its core back without further doing.
func (s scene) leaves(v *state.ServerView) bool {
	uid := v.PodUID
	if v.Claimant() && v.Claim != nil {
		uid = v.Claim.PodUID
	}
	if s.leaving[uid] {
		return true
	}
	if !s.patient || uid == "" {
		return false
	}
	pod, ok := s.snapshot.Pod(uid)
	return !ok || pod.Deleting || pod.Finished()
}

// standing is what a newcomer must exceed to displace a server: the criticality of its whole pod, because
// all of it would go.
func (s scene) standing(n *state.NodeView, id string) rt.Criticality {
	v, ok := n.Server(id)
	if s.keepAll || !ok || v.McKube == nil || s.spared[v.PodUID] {
		return rt.High
	}
	pod, ok := s.snapshot.Pod(v.PodUID)
	if !ok {
		return rt.High
	}
	return criticalityOf(pod)
}

// choose is the core where the server costs least, by its place in loads, and the pods that go for it.
func (s scene) choose(n *state.NodeView, loads []rt.Load, server rt.Server) (at int, victims []types.UID, ok bool) {
	var best room
	for i, load := range loads {
		gone, fits := rt.Victims(load, server)
		if !fits {
			continue
		}
		next := room{Node: n.Name, Cores: []int{load.ID}}
		next.evict(n, podsOf(n, gone))
		if !scheduled(without(loads[i:i+1], n, next.Victims)[0], server) || (ok && next.costs(best) >= 0) {
			continue
		}
		at, best, ok = i, next, true
	}
	return at, best.Victims, ok
}

// scheduled tells whether the scheduler, which adds up bandwidth whatever the core's policy, places it too.
func scheduled(load rt.Load, server rt.Server) bool {
	total := server.Charge(load.Granularity)
	for _, o := range load.Servers {
		total += o.Charge(load.Granularity)
	}
	return total <= load.Capacity
}

// podsOf are the pods of servers.
func podsOf(n *state.NodeView, servers []rt.Server) []types.UID {
	var out []types.UID
	for _, o := range servers {
		if v, ok := n.Server(o.ID); ok && !slices.Contains(out, v.PodUID) {
			out = append(out, v.PodUID)
		}
	}
	return out
}

// without are the loads after pods have gone.
func without(loads []rt.Load, n *state.NodeView, gone []types.UID) []rt.Load {
	out := slices.Clone(loads)
	for i := range out {
		out[i].Servers = slices.DeleteFunc(slices.Clone(out[i].Servers), func(o rt.Server) bool {
			v, ok := n.Server(o.ID)
			return ok && slices.Contains(gone, v.PodUID)
		})
	}
	return out
}

// evict adds pods to the price, with all their containers on the node.
func (r *room) evict(n *state.NodeView, pods []types.UID) {
	for _, uid := range pods {
		if slices.Contains(r.Victims, uid) {
			continue
		}
		r.Victims = append(r.Victims, uid)
		for _, v := range n.Servers {
			if v.PodUID == uid {
				r.Servers = append(r.Servers, v)
				r.bandwidth += v.Charge(n.Granularity)
			}
		}
	}
}

// costs compares two rooms; the cheaper is less.
func (r room) costs(o room) int {
	return cmp.Or(
		cmp.Compare(len(r.Servers), len(o.Servers)),
		slices.Compare(r.criticalities(), o.criticalities()),
		cmp.Compare(r.bandwidth, o.bandwidth),
		cmp.Compare(r.Node, o.Node), slices.Compare(r.Cores, o.Cores),
	)
}

// criticalities are those of the containers that go, the highest first.
func (r room) criticalities() []rt.Criticality {
	out := make([]rt.Criticality, len(r.Servers))
	for i, v := range r.Servers {
		out[i] = v.Criticality
	}
	slices.SortFunc(out, func(a, b rt.Criticality) int { return cmp.Compare(b, a) })
	return out
}
