package ladder

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// prepare works out what all rungs look at, whoever it is for.
func (p *planner) prepare() {
	p.before, p.pods, p.moved = layoutOf(p.Node), podsOn(p.Node), movedBy(p.Answers)
}

// groups are those for whom an action is looked for together, one group after the other, each for want of one for those before that was not tried in
// vain: all of a criticality, from the highest, and then those of them who lack nothing that was promised, as one whom nothing helps must not keep help
// from the others. They are of those who may have an answer beside what is under way, and somebody in each was seen to suffer since the last action.
func (p *planner) groups() [][]Sufferer {
	var out [][]Sufferer
	for _, level := range []rt.Criticality{rt.High, rt.Middle, rt.Low} {
		all := slices.DeleteFunc(slices.Clone(p.Sufferers), func(s Sufferer) bool { return s.Criticality != level || !letsAll(p.Beside, s, p.pods) })
		c := crowdOf(p.Node, all, nil)
		some := slices.DeleteFunc(slices.Clone(all), func(s Sufferer) bool { return c.lacks(p.before, s) })
		if out = append(out, all); len(some) < len(all) {
			out = append(out, some)
		}
	}
	return slices.DeleteFunc(out, func(g []Sufferer) bool {
		return !slices.ContainsFunc(g, func(s Sufferer) bool { return p.Since.IsZero() || s.Last.After(p.Since) })
	})
}

// turn has a group be those whom an action is looked for.
func (p *planner) turn(g []Sufferer) {
	p.crowd, p.goes, p.opened = crowdOf(p.Node, g, p.Sufferers), map[types.UID]*state.Destination{}, openedFor(p.Answers, g[0].Criticality)
	p.below = slices.ContainsFunc(p.Beside, func(o *v1alpha1.RTAction) bool {
		return opens(o) && slices.ContainsFunc(g, func(s Sufferer) bool { return s.Criticality == worth(o) || serves(o, s, p.pods) })
	})
}

// choose is the cheapest action of the lowest rung that helps. What was tried in vain and has rested since, and what a PodDisruptionBudget keeps
// when one was waited for, is no help: it is for when all rungs have no other, for anybody who suffers. ok is false when there is none.
func (p planner) choose() (out answer, ok bool) {
	p.prepare()
	var passed []string
	all := p.groups()
	for i, g := range all {
		if p.turn(g); i > 0 {
			p.ahead = first(all[0], g)
		}
		if out.Passed = nil; p.climbs(&out) {
			out.Before = p.ahead
			return out, true
		}
		if passed = append(passed, "nor does anything help "+g[0].Where()); i == 0 {
			passed = out.Passed
		}
	}
	out.Passed = append(p.wanderers(), passed...)
	return out, out.Kind != ""
}

// climbs asks rung after rung, until one has an action that is not in vain.
func (p *planner) climbs(out *answer) bool {
	for _, r := range p.rungs() {
		why := p.ask(r, out)
		if out.Kind != "" && !out.Vain {
			return true
		}
		out.Passed = append(out.Passed, fmt.Sprintf("%s: %s", r.kind, why))
	}
	return false
}

// first of some who suffer that is not among others, in words.
func first(some, others []Sufferer) string {
	at := slices.IndexFunc(some, func(s Sufferer) bool {
		return !slices.ContainsFunc(others, func(o Sufferer) bool { return o.ID == s.ID })
	})
	return some[max(at, 0)].Where()
}

// suffers tells whether the pod is one of those that the action is for, or suffers and is as critical.
func (p *planner) suffers(uid types.UID) bool {
	return slices.ContainsFunc(p.Sufferers, func(s Sufferer) bool { return s.PodUID == uid && s.Criticality >= p.crowd.sufferers[0].Criticality })
}

// suffering tells that of a container. Another one of the same pod may be in its way.
func (p *planner) suffering(id string) bool {
	return slices.ContainsFunc(p.Sufferers, func(s Sufferer) bool { return s.ID == id && s.Criticality >= p.crowd.sufferers[0].Criticality })
}
