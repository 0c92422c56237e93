package ladder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// rearrangements are other placements on the node. An affected container or one of its neighbours goes to another core. If the
// affected container lacks room, all containers in its way may go to other cores.
func (p *planner) rearrangements() []option {
	var out []option
	for _, s := range p.contention.affected {
		out = append(out, p.elsewhere(s.ServerView, s.Wanted)...)
		if p.refused(s) {
			continue
		}
		from := p.before.on(s.ID)
		for i := range p.Node.Servers {
			o := &p.Node.Servers[i]
			if from != rt.NoCore && o.Physical == from && !p.containerAffected(o.ID) && o.Criticality <= s.Criticality {
				out = append(out, p.elsewhere(o, o.InForce())...)
			}
		}
		if !p.contention.passes(p.before, s) {
			out = append(out, p.clearings(s)...)
		}
	}
	return out
}

// elsewhere are the other cores that hold a server with the given budget.
func (p *planner) elsewhere(s *state.ServerView, as rt.Server) []option {
	var out []option
	for _, id := range slices.Sorted(maps.Keys(p.contention.cores)) {
		if id == s.Physical || !rt.Admit(p.contention.cores[id], p.before[id], as).Admitted {
			continue
		}
		if o, ok := p.rearranged(map[string]int{s.ID: id}); ok {
			out = append(out, o)
		}
	}
	return out
}

// clearings are the cores from which other containers can move so that the affected container has the room that it lacks.
func (p *planner) clearings(s AffectedContainer) []option {
	var out []option
	loads := p.loads()
	for i, load := range loads {
		if at := p.before.on(s.ID); at != rt.NoCore && at != load.ID {
			continue
		}
		gone, ok := rt.Victims(load, s.Wanted)
		if !ok || len(gone) == 0 {
			continue
		}
		to, ok := resettled(slices.Delete(slices.Clone(loads), i, i+1), gone)
		if !ok {
			continue
		}
		if s.Physical != load.ID {
			to[s.ID] = load.ID
		}
		if o, ok := p.rearranged(to); ok {
			out = append(out, o)
		}
	}
	return out
}

// loads are the cores in order. Containers that must not move have the highest criticality.
func (p *planner) loads() []rt.Load {
	var out []rt.Load
	for _, id := range slices.Sorted(maps.Keys(p.contention.cores)) {
		load := rt.Load{Core: p.contention.cores[id], Servers: slices.Clone(p.before[id])}
		for i := range load.Servers {
			if v, ok := p.Node.Server(load.Servers[i].ID); !ok || !p.mayShift(v) {
				load.Servers[i].Criticality = rt.High
			}
		}
		out = append(out, load)
	}
	return out
}

// mayShift tells whether the planner may move a server to another core for this cause.
func (p *planner) mayShift(v *state.ServerView) bool {
	return v.McKube != nil && v.Running && !p.moved[v.PodUID] && !p.held(v.PodUID)
}

// resettled finds other cores for servers, the largest first.
func resettled(others []rt.Load, gone []rt.Server) (map[string]int, bool) {
	ordered := slices.Clone(gone)
	slices.SortFunc(ordered, func(a, b rt.Server) int {
		return cmp.Or(cmp.Compare(b.Charge(0), a.Charge(0)), strings.Compare(a.ID, b.ID))
	})
	out := map[string]int{}
	for _, s := range ordered {
		core, _, ok := rt.BestCore(others, s)
		if !ok {
			return nil, false
		}
		at := slices.IndexFunc(others, func(l rt.Load) bool { return l.ID == core })
		others[at].Servers = append(slices.Clip(others[at].Servers), s)
		out[s.ID] = core
	}
	return out, true
}

// movedBy lists the pods of which actions moved anything, or may have. A pod that still exists after a preemption was not
// evicted.
func movedBy(actions []*v1alpha1.RTAction) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, o := range actions {
		done := phaseOf(o) == rules.Succeeded || phaseOf(o) == rules.Failed
		if !phaseOf(o).Holds() && (!done || rules.Kind(o.Spec.Kind) == rules.Preempt) {
			continue
		}
		for _, m := range record.Moves(o.Spec) {
			out[types.UID(m.Pod)] = true
		}
	}
	return out
}

// mostMoves is the maximum number of moves in an action.
const mostMoves = 64

// rearranged is the option that moves servers to cores. ok is false if a container must not be moved, or a core would not hold
// what it gains.
func (p *planner) rearranged(to map[string]int) (option, bool) {
	var servers []rt.Server
	var views []*state.ServerView
	var words []string
	o := option{}
	for _, id := range slices.Sorted(maps.Keys(to)) {
		v, ok := p.Node.Server(id)
		if !ok || !p.mayShift(v) || v.Physical == rt.NoCore && v.Witness == rt.NoCore {
			return option{}, false
		}
		as := v.InForce()
		if v.Physical == rt.NoCore {
			as = v.Server
		}
		servers, views = append(servers, as), append(views, v)
		o.Moves = append(o.Moves, v1alpha1.ActionMove{PodUID: v.PodUID, Container: v.Container, Core: int32(to[id])})
		words = append(words, fmt.Sprintf("container %s of pod %s/%s to core %d", v.Container, v.Namespace, v.Pod, to[id]))
	}
	after := p.before.moved(servers, to)
	if len(o.Moves) > mostMoves || !p.contention.holds(p.before, after) {
		return option{}, false
	}
	o.effect, o.price = p.contention.effect(p.before, after), priceOf(p.Node, views)
	o.Crowds = p.contention.crowds(p.before, after, to)
	for _, core := range to {
		o.left += p.contention.left(after, core, "")
	}
	o.What = "moving " + strings.Join(words, ", ")
	return o, true
}
