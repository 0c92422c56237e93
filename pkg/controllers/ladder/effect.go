package ladder

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// worthwhile is the least bandwidth that an action must free around the affected containers, if these already have everything
// that they were promised.
const worthwhile rt.PPM = 10_000

// layout is what runs on each core of a node.
type layout map[int][]rt.Server

// layoutOf is the node as it is.
func layoutOf(n *state.NodeView) layout {
	out := layout{}
	for i := range n.Cores {
		out[n.Cores[i].ID] = n.Runs(&n.Cores[i]).Servers
	}
	return out
}

// without leaves servers out.
func (l layout) without(gone map[string]bool) layout {
	out := layout{}
	for core, servers := range l {
		out[core] = slices.DeleteFunc(slices.Clone(servers), func(s rt.Server) bool { return gone[s.ID] })
	}
	return out
}

// moved puts servers on other cores.
func (l layout) moved(servers []rt.Server, to map[string]int) layout {
	gone := map[string]bool{}
	for id := range to {
		gone[id] = true
	}
	out := l.without(gone)
	for _, s := range servers {
		out[to[s.ID]] = append(out[to[s.ID]], s)
	}
	return out
}

// on is the core of a server; rt.NoCore for none.
func (l layout) on(id string) int {
	for core, servers := range l {
		if slices.ContainsFunc(servers, func(s rt.Server) bool { return s.ID == id }) {
			return core
		}
	}
	return rt.NoCore
}

// effect is what an action brings to the affected containers.
type effect struct {
	// Cured is how many of them pass with their highest budget after the action and did not before.
	Cured int
	// Relief is the bandwidth that the action frees around the most critical of them. Net is that around all affected containers
	// of the node.
	Relief, Net rt.PPM
	// Harms: another affected container that is as critical, or more, would have less than before.
	Harms bool
	// Crowds: a core would be as full afterwards as the relieved core was before, and so be the next under pressure.
	Crowds bool
}

// helps tells whether the effect justifies an action. The action must not harm another container as critical, or more. It must
// cure a container. If no container lacks anything that was promised, it is enough to free sufficient bandwidth around them.
func (e effect) helps(lacking bool) bool {
	return !e.Harms && (e.Cured > 0 || !lacking && e.Relief >= worthwhile && e.Net >= worthwhile && !e.Crowds)
}

// contention is the contention set: the affected containers, and the cores of their node.
type contention struct {
	cores map[int]rt.Core
	// affected are the containers that an action is for.
	affected []AffectedContainer
	// others are the other affected containers. They count for freed bandwidth. A later action cures them.
	others []AffectedContainer
}

// contentionOf makes a contention set with first as the containers that an action is for.
func contentionOf(n *state.NodeView, first, all []AffectedContainer) contention {
	out := contention{cores: map[int]rt.Core{}, affected: first}
	for _, s := range all {
		if !slices.ContainsFunc(first, func(o AffectedContainer) bool { return o.ID == s.ID }) {
			out.others = append(out.others, s)
		}
	}
	for _, c := range n.Cores {
		out.cores[c.ID] = c.Core
	}
	return out
}

// passes tells whether a core holds the affected container with its highest budget: its own core or, without one, any core.
func (c contention) passes(l layout, s AffectedContainer) bool {
	if core := l.on(s.ID); core != rt.NoCore {
		return rt.Admit(c.cores[core], l[core], s.Wanted).Admitted
	}
	for id, core := range c.cores {
		if rt.Admit(core, l[id], s.Wanted).Admitted {
			return true
		}
	}
	return false
}

// room is the bandwidth that the other containers leave to the affected container on its core or, without one, on the best core.
func (c contention) room(l layout, s AffectedContainer) rt.PPM {
	if core := l.on(s.ID); core != rt.NoCore {
		return c.left(l, core, s.ID)
	}
	best := rt.PPM(0)
	for id := range c.cores {
		best = max(best, c.left(l, id, s.ID))
	}
	return best
}

func (c contention) left(l layout, core int, but string) rt.PPM {
	left := c.cores[core].Capacity
	for _, o := range l[core] {
		if o.ID != but {
			left -= o.Charge(c.cores[core].Granularity)
		}
	}
	return left
}

// lacking tells whether an affected container has no core, or a core that does not hold its highest budget.
func (c contention) lacking(l layout) bool {
	return slices.ContainsFunc(c.affected, func(s AffectedContainer) bool { return c.lacks(l, s) })
}

func (c contention) lacks(l layout, s AffectedContainer) bool {
	return l.on(s.ID) == rt.NoCore || !c.passes(l, s)
}

// effect compares two layouts.
func (c contention) effect(before, after layout) effect {
	var out effect
	for _, s := range c.affected {
		passed, passes := c.passes(before, s), c.passes(after, s)
		placed := before.on(s.ID) == rt.NoCore && after.on(s.ID) != rt.NoCore
		switch {
		case passes && (placed || !passed):
			out.Cured++
		case passed && !passes:
			out.Cured--
		}
		out.Relief += c.room(after, s) - c.room(before, s)
	}
	out.Net = out.Relief
	for _, s := range c.others {
		placed := before.on(s.ID) != rt.NoCore
		if after.on(s.ID) != rt.NoCore {
			out.Net += c.room(after, s) - c.room(before, s)
		}
		if s.Criticality >= c.affected[0].Criticality {
			out.Harms = out.Harms || c.passes(before, s) && !c.passes(after, s) || placed && c.room(after, s) < c.room(before, s)
		}
	}
	return out
}

// crowds tells whether a core that gains servers is then as full as the fullest core that they left was before. Without such
// moves the cores become more even with each move, so that the moves come to an end.
func (c contention) crowds(before, after layout, to map[string]int) bool {
	fullest := rt.PPM(0)
	for id := range to {
		if from := before.on(id); from != rt.NoCore {
			fullest = max(fullest, c.cores[from].Capacity-c.left(before, from, ""))
		}
	}
	for _, core := range to {
		if c.cores[core].Capacity-c.left(after, core, "") >= fullest {
			return true
		}
	}
	return false
}

// holds tells whether each core that gains servers passes its admission test.
func (c contention) holds(before, after layout) bool {
	for id, core := range c.cores {
		if len(after[id]) == 0 || !gains(before[id], after[id]) {
			continue
		}
		if !rt.Holds(core, after[id]).Admitted {
			return false
		}
	}
	return true
}

func gains(before, after []rt.Server) bool {
	return slices.ContainsFunc(after, func(s rt.Server) bool {
		return !slices.ContainsFunc(before, func(o rt.Server) bool { return o.ID == s.ID })
	})
}

// price is what an action costs the pods and containers that it moves.
type price int64

// priceOf a set of servers, with the budgets that are in force.
func priceOf(n *state.NodeView, servers []*state.ServerView) price {
	total := price(0)
	for _, s := range servers {
		in := s.InForce()
		total += price(rt.Loss(s.Criticality, in.Charge(n.Granularity)))
	}
	return total
}

// podsOn groups the governed servers of a node by their pods.
func podsOn(n *state.NodeView) map[types.UID][]*state.ServerView {
	out := map[types.UID][]*state.ServerView{}
	for i := range n.Servers {
		if s := &n.Servers[i]; s.McKube != nil && s.Running {
			out[s.PodUID] = append(out[s.PodUID], s)
		}
	}
	return out
}

// criticalityOf a pod is that of its most critical container.
func criticalityOf(servers []*state.ServerView) rt.Criticality {
	highest := rt.Low
	for _, s := range servers {
		highest = max(highest, s.Criticality)
	}
	return highest
}

func sortedUIDs(m map[types.UID]bool) []types.UID { return slices.Sorted(maps.Keys(m)) }
