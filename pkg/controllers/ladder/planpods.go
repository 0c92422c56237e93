package ladder

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// migrations are the options that move pods to another node. They move a neighbour of an affected container, or the affected
// container's own pod. If the container lacks room they move all pods that are in its way, and the first of them goes now.
func (p *planner) migrations() []option {
	var out []option
	for _, set := range p.sets(p.movable, p.keptMoving) {
		if o, ok := p.migration(set); ok {
			out = append(out, o)
		}
	}
	for _, s := range p.contention.affected {
		if o, ok := p.departure(s); ok {
			out = append(out, o)
		}
	}
	return out
}

// migration moves the first pod of a set, if all pods of the set find cores elsewhere. A pod that a budget blocks comes first:
// otherwise the others would go for nothing if it may not follow.
func (p *planner) migration(set []types.UID) (option, bool) {
	set = slices.Clone(set)
	slices.SortStableFunc(set, func(a, b types.UID) int {
		return cmp.Compare(min(len(p.keptMoving(b)), 1), min(len(p.keptMoving(a)), 1))
	})
	d, ok := p.allMove(set)
	if !ok {
		return option{}, false
	}
	o := option{Pods: set[:1], next: set[1:], Target: d.Node, What: "moving " + p.names(set[:1]) + " to node " + d.Node + p.anew(set[0], d.Node)}
	o.effect, o.price = p.gone(set)
	o.Crowds = p.crowdsNode(set[0], d.Node)
	return o, true
}

// departure moves the pod of an affected container itself.
func (p *planner) departure(s AffectedContainer) (option, bool) {
	if !p.movable(s.PodUID) {
		return option{}, false
	}
	d, ok := p.destination(s.PodUID)
	if !ok {
		return option{}, false
	}
	o := option{Pods: []types.UID{s.PodUID}, departing: []types.UID{s.PodUID}, Target: d.Node, price: priceOf(p.Node, p.pods[s.PodUID])}
	o.What = "moving " + p.names(o.Pods) + " itself to node " + d.Node + p.anew(s.PodUID, d.Node)
	o.effect = p.leaves(s, p.roomAt(d, s.ID))
	o.Crowds = p.crowdsNode(s.PodUID, d.Node)
	return o, true
}

// allMove tells whether all pods of a set together find cores and their other resources elsewhere. It returns where the first
// goes.
func (p *planner) allMove(set []types.UID) (state.Destination, bool) {
	if len(set) == 1 {
		return p.destination(set[0])
	}
	all, ok := preferred(p, set, func(avoid func(types.UID, string) bool) (map[types.UID]state.Destination, bool) {
		coming := map[string][]*state.PodView{}
		return p.Snapshot.Destinations(set, func(uid types.UID, n *state.NodeView) bool {
			view, ok := p.Snapshot.Pod(uid)
			if !ok || !p.suits(uid, n, coming[n.Name]...) || avoid(uid, n.Name) {
				return false
			}
			coming[n.Name] = append(coming[n.Name], view) // the snapshot calls this filter last
			return true
		})
	})
	return all[set[0]], ok
}

// movable tells whether the planner may move a pod to another node. A controller must make the pod again, no McKube of it may
// forbid it, and it must not have been moved for this cause. Nothing may tie it to the node. If it has to go before its
// replacement serves, eviction must be possible.
func (p *planner) movable(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && view.Owned && mayLeave(p.pods[uid]) && p.free(uid) && !p.tied(view) && (p.beside(uid, "") || !p.barred(view))
}

func mayLeave(servers []*state.ServerView) bool {
	return !slices.ContainsFunc(servers, func(s *state.ServerView) bool {
		m := s.McKube.Spec.Migration
		return m != nil && m.Policy == mcv1.MigrationNever
	})
}

// leaves is the effect when an affected container goes to a place with the given bandwidth. To leave a node on which deadlines
// are missed is of use by itself, because the node may be at fault. The same holds for a node whose agent cannot apply a budget
// for which there is room. If the container was affected on another node, too, the node is not at fault, and leaving brings
// nothing.
func (p *planner) leaves(s AffectedContainer, room rt.PPM) effect {
	if p.failedElsewhere(s) {
		return effect{}
	}
	out := effect{Relief: room - p.contention.room(p.before, s)}
	if !p.contention.passes(p.before, s) {
		out.Cured = 1
	}
	if p.byNode(s) {
		out.Relief = max(out.Relief, worthwhile)
	}
	out.Net = out.Relief
	return out
}

// preemptions are the options that evict pods for good. All of these are strictly less critical than the affected containers.
func (p *planner) preemptions() []option {
	var out []option
	for _, set := range p.sets(p.evictable, p.Leave.Kept) {
		o := option{Pods: set, What: "evicting " + p.names(set) + p.withoutBudget(set)}
		o.effect, o.price = p.gone(set)
		out = append(out, o)
	}
	return out
}

// evictable tells whether the planner may evict a pod for the affected containers, and the pod stays away then.
func (p *planner) evictable(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && criticalityOf(p.pods[uid]) < p.contention.affected[0].Criticality && p.free(uid) && !p.returns(uid) && !p.barred(view)
}

// returns tells whether a controller makes an evicted pod again on the same node: the pod tolerates the taint, so nothing keeps
// it away. The preempt executor would evict its successors for as long as the pressure lasts.
func (p *planner) returns(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && view.Remade && view.Tolerates(corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoSchedule})
}

// openings are the options that open another node for pods whose departure would help. No existing node has room for these pods,
// or every node would be as crowded for them. The planner judges the new node as an empty node of this node's kind.
func (p *planner) openings() []option {
	var out []option
	lacking, empty := p.contention.lacking(p.before), p.another()
	for _, set := range p.sets(p.movable, p.keptMoving) {
		if o, ok := p.migration(set); ok && o.helps(lacking) || slices.ContainsFunc(set, p.opening) {
			continue
		}
		o := option{Pods: set, What: "opening a node for " + p.names(set)}
		o.effect, o.price = p.gone(set)
		o.Crowds = p.crowdsAt(set[0], empty)
		out = append(out, o)
	}
	for _, s := range p.contention.affected {
		if o, ok := p.departure(s); !p.movable(s.PodUID) || p.opening(s.PodUID) || ok && o.helps(lacking) {
			continue
		}
		o := option{Pods: []types.UID{s.PodUID}, departing: []types.UID{s.PodUID}, price: priceOf(p.Node, p.pods[s.PodUID])}
		o.What = "opening a node for " + p.names(o.Pods)
		o.effect = p.leaves(s, p.most(s, empty))
		o.Crowds = p.crowdsAt(s.PodUID, empty)
		out = append(out, o)
	}
	return out
}

// replacements is the option to replace the node. It must be late, have less than it promised, or be crowded. All of its
// governed pods must be allowed to leave. No pod may be more critical than the affected containers, or belong to another action.
func (p *planner) replacements() []option {
	if p.Pool == "" {
		return nil
	}
	o := option{departing: sortedPods(p.pods), What: "replacing node " + p.Node.Name}
	for _, uid := range o.departing {
		view, ok := p.Snapshot.Pod(uid)
		if !ok || !view.Owned || !mayLeave(p.pods[uid]) || p.held(uid) || criticalityOf(p.pods[uid]) > p.contention.affected[0].Criticality {
			return nil
		}
		o.price += priceOf(p.Node, p.pods[uid])
		switch {
		case view.Deleting:
			continue // it leaves in any case
		case p.staysWithNode(view):
			return nil
		case p.moved[uid]:
			o.again = append(o.again, uid)
		}
		o.displaced = append(o.displaced, uid)
	}
	if len(o.displaced) > mostDisplaced {
		return nil
	}
	for _, s := range p.contention.affected {
		full := rt.PPM(0)
		if core := p.before.on(s.ID); core != rt.NoCore {
			full = p.contention.cores[core].Capacity
		}
		e := p.leaves(s, full)
		o.Cured, o.Relief, o.Net = o.Cured+e.Cured, o.Relief+e.Relief, o.Net+e.Net
	}
	return []option{o}
}

// mostDisplaced is the maximum number of pods that an action names.
const mostDisplaced = 200
