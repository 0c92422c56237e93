package rtruntime

import (
	"cmp"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// reasonClaimTooSmall is the reason of a server that its claims do not pay for.
const reasonClaimTooSmall = "ClaimTooSmall"

// nodeDecision is what should run on a node.
type nodeDecision struct {
	Spec v1alpha1.RTNodeSpec
	// Plans are those of the spec, by core.
	Plans []rt.CorePlan
	// Changes are servers that go to another core, Refused those that get none.
	Changes []rt.Change
	Refused map[string]rt.Verdict
	// Unmoved are servers that an action asked to move and that stay, because a core does not take what would come.
	Unmoved map[string]rt.Verdict
	// NoRoom are servers that pressure should raise and the plan of their core does not let.
	NoRoom []string
	// Pressure to remember, and Wake after what time to decide again; 0 is never.
	Pressure pressure
	Wake     time.Duration
}

// decide is the wanted RTNode.spec of a node. It depends on nothing but its arguments: what the API
// says of the node, what is remembered of its pressure, the controller's time, what is charged to
// every budget, and what an action asks to move.
//
// Containers with a claim on a core of the node become servers; rt.Arrange puts them on cores so that every
// core passes the admission test. Those whose pod has finished or whose McKube is gone leave the spec.
func decide(n *state.NodeView, before pressure, now time.Time, granularity int64, asked moves) nodeDecision {
	d := nodeDecision{Pressure: before.next(n, now), Refused: map[string]rt.Verdict{}}
	if len(n.Cores) == 0 && n.RTNode != nil {
		d.Spec = n.RTNode.Spec // nothing is known of the cores, so nothing is known better
		return d
	}
	list, unpaid := d.candidates(n, now, granularity)
	placed := d.arrange(n, list, asked)
	for _, c := range unpaid {
		d.Refused[c.server.ID] = c.unpaid(n, granularity)
	}
	on := byCore(list, placed)
	var receding []rt.Server
	for i := range n.Cores {
		receding = append(receding, d.addCore(n, n.Cores[i].Core, on[n.Cores[i].ID], now)...)
	}
	d.giveBack(receding, now)
	slices.SortFunc(d.Spec.Servers, func(a, b v1alpha1.RTServer) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	return d
}

// candidates are the containers that have a claim on a core of the node, and those among them that
// their claims do not pay for. Claims that give way pay for nothing, and those just made not yet.
func (d *nodeDecision) candidates(n *state.NodeView, now time.Time, granularity int64) (list, unpaid []candidate) {
	over, reported := overbooked(n), askedOn(n.RTNode)
	for i := range n.Servers {
		s := &n.Servers[i]
		if !s.Running || s.McKube == nil || s.Witness == rt.NoCore {
			continue
		}
		firm, wait := firmly(s, over, now)
		d.Wake = earliest(d.Wake, wait)
		c, ok := candidateOf(n, firm, granularity)
		c.lostRace, c.asked = len(over.of(s)) > 0, reported[s.ID]
		if c.fallback != nil {
			c.fallback.asked = c.asked
		}
		switch {
		case ok && (!c.lostRace || c.server.Charge(granularity) <= firm.Claimed):
			list = append(list, c)
		case wait == 0 || c.lostRace:
			unpaid = append(unpaid, c)
		}
	}
	return list, unpaid
}

// arrange places the candidates, those that are asked to move where these are, and moves none that an action has for another's sake. While some find no core, settings that grew are taken back: first those
// of the refused, then all.
func (d *nodeDecision) arrange(n *state.NodeView, list []candidate, asked moves) rt.Placement {
	in := n.RT()
	in.Held = asked.heldOn(n)
	if len(in.Held) > 0 { // that they are free again need not show on the node
		d.Wake = earliest(d.Wake, another)
	}
	before := in.Current
	for {
		in.Servers = in.Servers[:0]
		for _, c := range list {
			in.Servers = append(in.Servers, n.WithFit(c.server))
		}
		in.Current = before
		in.Current, d.Unmoved = asked.apply(in)
		placed, changes, refused := rt.Arrange(in)
		if len(refused) == 0 || !takeBack(list, refused) { // every round takes one back at least
			d.Changes, d.Refused = asked.changes(before, placed, changes), refused
			return placed
		}
	}
}

// takeBack gives candidates the settings that they run with. It tells whether there were any to give.
func takeBack(list []candidate, refused map[string]rt.Verdict) bool {
	grown := slices.ContainsFunc(list, func(c candidate) bool {
		_, no := refused[c.server.ID]
		return no && c.fallback != nil
	})
	any := false
	for i, c := range list {
		_, no := refused[c.server.ID]
		if c.fallback != nil && (no || !grown) {
			list[i], any = *c.fallback, true
		}
	}
	return any
}

// byCore are the candidates by the core that they were placed on.
func byCore(list []candidate, placed rt.Placement) map[int][]*candidate {
	out := map[int][]*candidate{}
	for i := range list {
		if core, ok := placed[list[i].server.ID]; ok {
			out[core] = append(out[core], &list[i])
		}
	}
	return out
}

// addCore adds the servers and the plan of a core. It returns those of which a raised budget is no longer needed.
func (d *nodeDecision) addCore(n *state.NodeView, core rt.Core, list []*candidate, now time.Time) (receding []rt.Server) {
	if len(list) == 0 {
		return nil
	}
	servers, held := make([]rt.Server, len(list)), map[string]bool{}
	for i, c := range list {
		servers[i], held[c.server.ID] = c.server, raisedByAgent(c.view)
	}
	plan := rt.PlanCore(core, servers)
	room := raisable(core, servers, d.contested(plan, list, now), held)
	for _, c := range list {
		e := c.entry
		e.Cores = []int32{int32(core.ID)}
		e.Level = d.level(n, c, room[c.server.ID], now)
		if d.recedes(c, room[c.server.ID], e.Level) {
			receding = append(receding, c.server)
		}
		d.Spec.Servers = append(d.Spec.Servers, e)
	}
	d.Plans = append(d.Plans, plan)
	d.Spec.Plan = append(d.Spec.Plan, planOf(plan, list))
	return receding
}

// contested is a plan with only the raises that a server needs. On a node that is not busy these are servers that are
// raised, and servers with reported overruns. Raises that are paid for take nothing from other servers.
func (d *nodeDecision) contested(plan rt.CorePlan, list []*candidate, now time.Time) rt.CorePlan {
	if d.Pressure.Busy {
		return plan
	}
	wanted := map[string]bool{}
	for _, c := range list {
		raised := c.view.Spec != nil && c.view.Spec.Level == v1alpha1.LevelHigh
		wanted[c.server.ID] = raised || c.asks(now)
	}
	plan.Raise = slices.DeleteFunc(slices.Clone(plan.Raise), func(r rt.Raise) bool { return !r.AtOnce && !wanted[r.ID] })
	return plan
}

// level of a server. On a node whose agent is silent it stays: what the agent said on pressure is old, and the agent
// would not apply a new one.
func (d *nodeDecision) level(n *state.NodeView, c *candidate, room bool, now time.Time) string {
	if n.Agent == state.AgentSilent && c.view.Spec != nil && (room || c.view.Spec.Level != v1alpha1.LevelHigh) {
		return cmp.Or(c.view.Spec.Level, v1alpha1.LevelLow)
	}
	level, wait := d.Pressure.level(c, room, now)
	d.Wake = earliest(d.Wake, wait)
	if (d.Pressure.Busy || c.asks(now)) && !room && c.server.MayEscalate() {
		d.NoRoom = append(d.NoRoom, c.server.ID)
	}
	return level
}

// raisedByAgent tells whether the agent has a server above its low budget without being asked to.
func raisedByAgent(s *state.ServerView) bool {
	return s.Applied != nil && s.Applied.Level != "" && s.Applied.Level != v1alpha1.LevelLow &&
		(s.Spec == nil || s.Spec.Level != v1alpha1.LevelHigh)
}

// planOf is a plan in the agent's words.
func planOf(p rt.CorePlan, list []*candidate) v1alpha1.RTCorePlan {
	refs := map[string]v1alpha1.RTServerRef{}
	for _, c := range list {
		refs[c.server.ID] = v1alpha1.RTServerRef{PodUID: c.view.PodUID, Container: c.view.Container}
	}
	out := v1alpha1.RTCorePlan{Core: int32(p.Core), Test: p.Test, ThresholdPpm: int64(p.Threshold), MaxRaised: int32(p.Windows)}
	for _, r := range p.Raise {
		out.Raise = append(out.Raise, v1alpha1.RTRaise{RTServerRef: refs[r.ID], ToUs: r.ToUs})
	}
	for _, s := range p.Squeeze {
		out.Squeeze = append(out.Squeeze, v1alpha1.RTSqueeze{RTServerRef: refs[s.ID], FloorUs: s.FloorUs})
	}
	return out
}
