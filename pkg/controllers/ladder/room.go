package ladder

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// another is an empty node of the same kind.
func (p *planner) another() *state.NodeView {
	out := &state.NodeView{Granularity: p.Node.Granularity}
	for i := range p.Node.Cores {
		core := p.Node.Cores[i].Core
		out.Cores = append(out.Cores, state.CoreView{Core: core, Free: core.Capacity})
	}
	return out
}

// crowdsNode tells for a node's name whether a pod would be as crowded there.
func (p *planner) crowdsNode(uid types.UID, node string) bool {
	n, ok := p.Snapshot.NodeView(node)
	return !ok || p.crowdsAt(uid, n)
}

// crowdsAt tells whether a core of a node, with all containers of a pod that come to it, would be as full as the fullest core
// that the pod relieves. A container alone on a core is not crowded if it has as much room as here. To leave a node on which
// deadlines are missed is of use on every node.
func (p *planner) crowdsAt(uid types.UID, n *state.NodeView) bool {
	relieved, some := p.relieved(uid)
	if !some || p.missing(uid) {
		return false
	}
	cores, ok := p.Snapshot.CoresOf(uid, n)
	if !ok {
		return true
	}
	coming := p.coming(cores)
	for i := range n.Cores {
		core := &n.Cores[i]
		group := coming[core.ID]
		if len(group) == 0 || len(group) == 1 && len(n.Claims(core).Servers) == 0 && core.Capacity >= p.contention.left(p.before, group[0].Physical, group[0].ID) {
			continue
		}
		if core.Free-charges(group, core.Granularity) <= relieved {
			return true
		}
	}
	return false
}

// relieved is the bandwidth left on the fullest contended core that a pod leaves.
func (p *planner) relieved(uid types.UID) (left rt.PPM, some bool) {
	contendedCores := p.contendedCores()
	for _, s := range p.pods[uid] {
		if s.Physical == rt.NoCore || !contendedCores[s.Physical] {
			continue
		}
		if here := p.contention.left(p.before, s.Physical, ""); !some || here < left {
			left, some = here, true
		}
	}
	return left, some
}

// missing tells whether the action is for a pod because it misses deadlines.
func (p *planner) missing(uid types.UID) bool {
	for _, s := range p.contention.affected {
		if s.PodUID == uid && s.Source == SourceMisses {
			return true
		}
	}
	return false
}

// coming are the containers that come to cores.
func (p *planner) coming(cores map[string]int) map[int][]*state.ServerView {
	out := map[int][]*state.ServerView{}
	for i := range p.Node.Servers {
		s := &p.Node.Servers[i]
		if core, ok := cores[s.ID]; ok {
			out[core] = append(out[core], s)
		}
	}
	return out
}

// charges are what containers take from a core together.
func charges(group []*state.ServerView, granularity int64) rt.PPM {
	sum := rt.PPM(0)
	for _, s := range group {
		in := s.InForce()
		sum += in.Charge(granularity)
	}
	return sum
}

// roomAt is the bandwidth that other containers leave to a container at its destination. The others include those of its own
// pod.
func (p *planner) roomAt(d state.Destination, id string) rt.PPM {
	n, ok := p.Snapshot.NodeView(d.Node)
	if !ok {
		return 0
	}
	return p.roomOn(n, d.Cores, id)
}

func (p *planner) roomOn(n *state.NodeView, cores map[string]int, id string) rt.PPM {
	core, ok := n.Core(cores[id])
	if !ok {
		return 0
	}
	room := core.Free
	for _, s := range p.coming(cores)[core.ID] {
		if s.ID != id {
			in := s.InForce()
			room -= in.Charge(core.Granularity)
		}
	}
	return room
}

// most is the bandwidth that an empty node of the same kind would leave to an affected container. If its pod finds no cores
// there, it is the capacity of a core.
func (p *planner) most(s AffectedContainer, empty *state.NodeView) rt.PPM {
	if cores, ok := p.Snapshot.CoresOf(s.PodUID, empty); ok {
		return p.roomOn(empty, cores, s.ID)
	}
	out := rt.PPM(0)
	for i := range empty.Cores {
		out = max(out, empty.Cores[i].Capacity)
	}
	return out
}
