package ladder

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// worthwhile is the least bandwidth around those who suffer that an action must free, where they have all that they are
// promised already.
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

// effect is what an action brings to those who suffer.
type effect struct {
	// Cured is how many of them pass with their highest budget who did not.
	Cured int
	// Relief is the bandwidth that is freed around the most critical of them, Net that around all who suffer on the node.
	Relief, Net rt.PPM
	// Harms: somebody else who suffers and is as critical, or more, would have less than before.
	Harms bool
	// Crowds: a core would be as full afterwards as the one that is relieved was before, and so the next to suffer.
	Crowds bool
}

// helps tells whether the effect is worth an action: it does nobody harm who comes before, and cures somebody or, where nobody lacks anything that was promised,
// frees enough around them.
func (e effect) helps(lacking bool) bool {
	return !e.Harms && (e.Cured > 0 || !lacking && e.Relief >= worthwhile && e.Net >= worthwhile && !e.Crowds)
}

// crowd is those who suffer and the cores of their node.
type crowd struct {
	cores map[int]rt.Core
	// sufferers are those whom an action is for.
	sufferers []Sufferer
	// others are those who suffer beside them: they count where bandwidth is freed, and are cured at another time.
	others []Sufferer
}

// crowdOf has some of those who suffer be those whom an action is for.
func crowdOf(n *state.NodeView, first, all []Sufferer) crowd {
	out := crowd{cores: map[int]rt.Core{}, sufferers: first}
	for _, s := range all {
		if !slices.ContainsFunc(first, func(o Sufferer) bool { return o.ID == s.ID }) {
			out.others = append(out.others, s)
		}
	}
	for _, c := range n.Cores {
		out.cores[c.ID] = c.Core
	}
	return out
}

// passes tells whether a core holds the sufferer with its highest budget: its own or, without one, any.
func (c crowd) passes(l layout, s Sufferer) bool {
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

// room is the bandwidth that the others leave to the sufferer on its core or, without one, on the best.
func (c crowd) room(l layout, s Sufferer) rt.PPM {
	if core := l.on(s.ID); core != rt.NoCore {
		return c.left(l, core, s.ID)
	}
	best := rt.PPM(0)
	for id := range c.cores {
		best = max(best, c.left(l, id, s.ID))
	}
	return best
}

func (c crowd) left(l layout, core int, but string) rt.PPM {
	left := c.cores[core].Capacity
	for _, o := range l[core] {
		if o.ID != but {
			left -= o.Charge(c.cores[core].Granularity)
		}
	}
	return left
}

// lacking tells whether somebody has no core, or one that does not hold its highest budget.
func (c crowd) lacking(l layout) bool {
	return slices.ContainsFunc(c.sufferers, func(s Sufferer) bool { return c.lacks(l, s) })
}

func (c crowd) lacks(l layout, s Sufferer) bool { return l.on(s.ID) == rt.NoCore || !c.passes(l, s) }

// effect compares two layouts.
func (c crowd) effect(before, after layout) effect {
	var out effect
	for _, s := range c.sufferers {
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
		if s.Criticality >= c.sufferers[0].Criticality {
			out.Harms = out.Harms || c.passes(before, s) && !c.passes(after, s) || placed && c.room(after, s) < c.room(before, s)
		}
	}
	return out
}

// crowds tells whether a core that gains servers is then as full as the fullest that they left was before. Where that is
// ruled out the cores become more even with each move, so that moves come to an end.
func (c crowd) crowds(before, after layout, to map[string]int) bool {
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

// holds tells whether each core that has been given servers passes its test.
func (c crowd) holds(before, after layout) bool {
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

// price is what an action costs those who are moved.
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
