package ladder

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// prepare computes what all escalation levels need, for any group.
func (p *planner) prepare() {
	p.before, p.pods, p.moved = layoutOf(p.Node), podsOn(p.Node), movedBy(p.Answers)
}

// groups lists the groups of affected containers for which the planner looks for a common action, in order. It looks at a group
// if the groups before it have no action that was not tried in vain. A group is all containers of a criticality, from the
// highest, followed by those of them that lack nothing that was promised: so a container that nothing helps does not keep help
// from the others. Only containers that may have an answer beside the actions in progress are in a group. At least one of each
// group was affected since the last action.
func (p *planner) groups() [][]AffectedContainer {
	var out [][]AffectedContainer
	for _, level := range []rt.Criticality{rt.High, rt.Middle, rt.Low} {
		all := slices.DeleteFunc(slices.Clone(p.Affected), func(s AffectedContainer) bool { return s.Criticality != level || !letsAll(p.Beside, s, p.pods) })
		c := contentionOf(p.Node, all, nil)
		some := slices.DeleteFunc(slices.Clone(all), func(s AffectedContainer) bool { return c.lacks(p.before, s) })
		if out = append(out, all); len(some) < len(all) {
			out = append(out, some)
		}
	}
	return slices.DeleteFunc(out, func(g []AffectedContainer) bool {
		return !slices.ContainsFunc(g, func(s AffectedContainer) bool { return p.Since.IsZero() || s.Last.After(p.Since) })
	})
}

// turn makes a group the containers for which the planner looks for an action.
func (p *planner) turn(g []AffectedContainer) {
	p.contention, p.goes, p.opened = contentionOf(p.Node, g, p.Affected), map[types.UID]*state.Destination{}, openedFor(p.Answers, g[0].Criticality)
	p.below = slices.ContainsFunc(p.Beside, func(o *v1alpha1.RTAction) bool {
		return opens(o) && slices.ContainsFunc(g, func(s AffectedContainer) bool { return s.Criticality == worth(o) || serves(o, s, p.pods) })
	})
}

// choose returns the cheapest action of the lowest escalation level that helps. An action that was tried in vain does not count
// as help, even if its backoff is over. Neither does an action that a PodDisruptionBudget blocks, once an action has waited for
// a budget. The planner takes such an action only when no level has another one for any affected container. ok is false when
// there is none.
func (p planner) choose() (out answer, ok bool) {
	p.prepare()
	var passed []string
	all := p.groups()
	for i, g := range all {
		if p.turn(g); i > 0 {
			p.ahead = first(all[0], g)
		}
		if out.Passed = nil; p.escalates(&out) {
			out.Before = p.ahead
			return out, true
		}
		if passed = append(passed, "nor does anything help "+g[0].Where()); i == 0 {
			passed = out.Passed
		}
	}
	out.Passed = append(p.failedElsewhereMessages(), passed...)
	return out, out.Kind != ""
}

// escalates goes through the escalation levels until one has an action that is not in vain.
func (p *planner) escalates(out *answer) bool {
	for _, r := range p.escalationLevels() {
		why := p.ask(r, out)
		if out.Kind != "" && !out.Vain {
			return true
		}
		out.Passed = append(out.Passed, fmt.Sprintf("%s: %s", r.kind, why))
	}
	return false
}

// first describes the first affected container of some that is not among others.
func first(some, others []AffectedContainer) string {
	at := slices.IndexFunc(some, func(s AffectedContainer) bool {
		return !slices.ContainsFunc(others, func(o AffectedContainer) bool { return o.ID == s.ID })
	})
	return some[max(at, 0)].Where()
}

// podAffected tells whether the pod has an affected container at least as critical as those that the action is for.
func (p *planner) podAffected(uid types.UID) bool {
	return slices.ContainsFunc(p.Affected, func(s AffectedContainer) bool {
		return s.PodUID == uid && s.Criticality >= p.contention.affected[0].Criticality
	})
}

// containerAffected tells the same of a container. Another container of the same pod may be in its way.
func (p *planner) containerAffected(id string) bool {
	return slices.ContainsFunc(p.Affected, func(s AffectedContainer) bool {
		return s.ID == id && s.Criticality >= p.contention.affected[0].Criticality
	})
}
