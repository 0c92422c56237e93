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

// rearrangements are the other placements on the node: somebody who suffers goes to another core, one of its neighbours
// does, or for somebody who lacks room all that are in the way.
func (p *planner) rearrangements() []option {
	var out []option
	for _, s := range p.crowd.sufferers {
		out = append(out, p.elsewhere(s.ServerView, s.Wanted)...)
		if p.refused(s) {
			continue
		}
		from := p.before.on(s.ID)
		for i := range p.Node.Servers {
			o := &p.Node.Servers[i]
			if from != rt.NoCore && o.Physical == from && !p.suffering(o.ID) && o.Criticality <= s.Criticality {
				out = append(out, p.elsewhere(o, o.InForce())...)
			}
		}
		if !p.crowd.passes(p.before, s) {
			out = append(out, p.clearings(s)...)
		}
	}
	return out
}

// elsewhere are the other cores that take a server as it is to be.
func (p *planner) elsewhere(s *state.ServerView, as rt.Server) []option {
	var out []option
	for _, id := range slices.Sorted(maps.Keys(p.crowd.cores)) {
		if id == s.Physical || !rt.Admit(p.crowd.cores[id], p.before[id], as).Admitted {
			continue
		}
		if o, ok := p.rearranged(map[string]int{s.ID: id}); ok {
			out = append(out, o)
		}
	}
	return out
}

// clearings are the cores from which others can be moved so that the one that lacks room has it.
func (p *planner) clearings(s Sufferer) []option {
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

// loads are the cores in order; who may not be moved has the highest criticality.
func (p *planner) loads() []rt.Load {
	var out []rt.Load
	for _, id := range slices.Sorted(maps.Keys(p.crowd.cores)) {
		load := rt.Load{Core: p.crowd.cores[id], Servers: slices.Clone(p.before[id])}
		for i := range load.Servers {
			if v, ok := p.Node.Server(load.Servers[i].ID); !ok || !p.mayShift(v) {
				load.Servers[i].Criticality = rt.High
			}
		}
		out = append(out, load)
	}
	return out
}

// mayShift tells whether a server may go to another core for this cause.
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

// movedBy are the pods of which anything was moved by actions that did, or may have done, what they were for. Who is still there after a
// preemption was not evicted.
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

// mostMoves is how many an action takes.
const mostMoves = 64

// rearranged is the option that puts servers on cores. ok is false when somebody may not be moved, or a core would not
// hold what it gains.
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
	if len(o.Moves) > mostMoves || !p.crowd.holds(p.before, after) {
		return option{}, false
	}
	o.effect, o.price = p.crowd.effect(p.before, after), priceOf(p.Node, views)
	o.Crowds = p.crowd.crowds(p.before, after, to)
	for _, core := range to {
		o.left += p.crowd.left(after, core, "")
	}
	o.What = "moving " + strings.Join(words, ", ")
	return o, true
}
