package rtruntime

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
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
	// spared pods are no victims; keepAll spares every pod.
	spared  uids
	keepAll bool
	// kept is what PodDisruptionBudgets say now; nil: the plan waits for every pod that has to go. forced pods go,
	// whichever other pods do.
	kept   *pdb.Leave
	forced []types.UID
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
	// Loss is their price.
	Loss int64
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

// cheapest is the room that costs least, then the first by name. Every core of every node is looked at.
func (s scene) cheapest() (best room, found bool) {
	left := mostWidened
	for n := range s.snapshot.Nodes() {
		r, ok := s.on(n)
		if !ok || (found && r.costs(best) >= 0) {
			continue
		}
		if !s.has(r) {
			r, ok = s.wider(n, &left)
		}
		if ok && (!found || r.costs(best) < 0) {
			best, found = r, true
		}
	}
	return best, found
}

// has tells whether the node of a room would have everything else that the pod asks for, too.
func (s scene) has(r room) bool {
	return s.otherwise == nil || s.otherwise(r.Node, s.leaving.with(r.Victims...))
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

// boundElsewhere: a claim of the pod was given a core of another node.
func (s scene) boundElsewhere(node string) bool {
	return slices.ContainsFunc(s.pod.Governed, func(g state.Governed) bool {
		return g.Claim.Allocated() && g.Claim.Node != node
	})
}

// loads are the cores that the pod's claims match, as the scheduler counts them, without what leaves.
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

// scheduled tells whether the scheduler, which adds up bandwidth whatever the core's policy, places it too.
func scheduled(load rt.Load, server rt.Server) bool {
	total := server.Charge(load.Granularity)
	for _, o := range load.Servers {
		total += o.Charge(load.Granularity)
	}
	return total <= load.Capacity
}

// costs compares two rooms; the cheaper is less.
func (r room) costs(o room) int {
	return cmp.Or(cmp.Compare(r.Loss, o.Loss), cmp.Compare(r.Node, o.Node), slices.Compare(r.Cores, o.Cores))
}
