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

// migrations are the pods that may go to another node: neighbours of those who suffer, all in the way of somebody who
// lacks room, of whom the first goes now, or one who suffers itself.
func (p *planner) migrations() []option {
	var out []option
	for _, set := range p.sets(p.movable, p.keptMoving) {
		if o, ok := p.migration(set); ok {
			out = append(out, o)
		}
	}
	for _, s := range p.crowd.sufferers {
		if o, ok := p.departure(s); ok {
			out = append(out, o)
		}
	}
	return out
}

// migration has the first of a set go, where all of them find cores elsewhere: one whom a budget keeps, as the others would go for nothing where it
// may not follow.
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

// departure has somebody who suffers go itself.
func (p *planner) departure(s Sufferer) (option, bool) {
	if !p.movable(s.PodUID) {
		return option{}, false
	}
	d, ok := p.destination(s.PodUID)
	if !ok {
		return option{}, false
	}
	o := option{Pods: []types.UID{s.PodUID}, leavers: []types.UID{s.PodUID}, Target: d.Node, price: priceOf(p.Node, p.pods[s.PodUID])}
	o.What = "moving " + p.names(o.Pods) + " itself to node " + d.Node + p.anew(s.PodUID, d.Node)
	o.effect = p.leaves(s, p.roomAt(d, s.ID))
	o.Crowds = p.crowdsNode(s.PodUID, d.Node)
	return o, true
}

// allMove tells whether all pods of a set find cores elsewhere, and what else they ask for, together, and where the first goes.
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
			coming[n.Name] = append(coming[n.Name], view) // it is asked last of all
			return true
		})
	})
	return all[set[0]], ok
}

// movable tells whether a pod may be moved to another node: somebody makes it again, no McKube of it forbids it, it was not moved for this cause,
// nothing ties it to the node, and it may be evicted where it has to go before another serves.
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

// leaves is what it brings when one who suffers goes to where so much is left to it. To leave a node on which deadlines
// are missed, or whose agent cannot apply a budget for which there is room, is of use by itself: it may be the node that is at fault. It was not, if
// the container suffered so on another, too: then leaving brings nothing.
func (p *planner) leaves(s Sufferer, room rt.PPM) effect {
	if p.wandering(s) {
		return effect{}
	}
	out := effect{Relief: room - p.crowd.room(p.before, s)}
	if !p.crowd.passes(p.before, s) {
		out.Cured = 1
	}
	if p.byNode(s) {
		out.Relief = max(out.Relief, worthwhile)
	}
	out.Net = out.Relief
	return out
}

// preemptions are the pods that may be evicted for good: all strictly less critical than those who suffer.
func (p *planner) preemptions() []option {
	var out []option
	for _, set := range p.sets(p.evictable, p.Leave.Kept) {
		o := option{Pods: set, What: "evicting " + p.names(set) + p.bereft(set)}
		o.effect, o.price = p.gone(set)
		out = append(out, o)
	}
	return out
}

// evictable tells whether a pod may be evicted for those who suffer, and stays away then.
func (p *planner) evictable(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && criticalityOf(p.pods[uid]) < p.crowd.sufferers[0].Criticality && p.free(uid) && !p.returns(uid) && !p.barred(view)
}

// returns tells whether a pod that is evicted is made again where it was: it tolerates the taint, so that nothing keeps it off. It would be evicted
// again, as another pod, for as long as the pressure lasts.
func (p *planner) returns(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && view.Remade && view.Tolerates(corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoSchedule})
}

// openings are the pods whose leaving would help if another node had room for them: they find none, or none where they would not be as crowded. What
// is opened is judged as one that is there, as an empty node of this one's kind.
func (p *planner) openings() []option {
	var out []option
	lacking, empty := p.crowd.lacking(p.before), p.another()
	for _, set := range p.sets(p.movable, p.keptMoving) {
		if o, ok := p.migration(set); ok && o.helps(lacking) || slices.ContainsFunc(set, p.opening) {
			continue
		}
		o := option{Pods: set, What: "opening a node for " + p.names(set)}
		o.effect, o.price = p.gone(set)
		o.Crowds = p.crowdsAt(set[0], empty)
		out = append(out, o)
	}
	for _, s := range p.crowd.sufferers {
		if o, ok := p.departure(s); !p.movable(s.PodUID) || p.opening(s.PodUID) || ok && o.helps(lacking) {
			continue
		}
		o := option{Pods: []types.UID{s.PodUID}, leavers: []types.UID{s.PodUID}, price: priceOf(p.Node, p.pods[s.PodUID])}
		o.What = "opening a node for " + p.names(o.Pods)
		o.effect = p.leaves(s, p.most(s, empty))
		o.Crowds = p.crowdsAt(s.PodUID, empty)
		out = append(out, o)
	}
	return out
}

// replacements is the node itself: where it is late, or has less than it promised, or is crowded, and all of its governed
// pods may leave it, none of which is more critical than who suffers, or in other hands.
func (p *planner) replacements() []option {
	if p.Pool == "" {
		return nil
	}
	o := option{leavers: sortedPods(p.pods), What: "replacing node " + p.Node.Name}
	for _, uid := range o.leavers {
		view, ok := p.Snapshot.Pod(uid)
		if !ok || !view.Owned || !mayLeave(p.pods[uid]) || p.held(uid) || criticalityOf(p.pods[uid]) > p.crowd.sufferers[0].Criticality {
			return nil
		}
		o.price += priceOf(p.Node, p.pods[uid])
		switch {
		case view.Deleting:
			continue // it goes in any case
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
	for _, s := range p.crowd.sufferers {
		full := rt.PPM(0)
		if core := p.before.on(s.ID); core != rt.NoCore {
			full = p.crowd.cores[core].Capacity
		}
		e := p.leaves(s, full)
		o.Cured, o.Relief, o.Net = o.Cured+e.Cured, o.Relief+e.Relief, o.Net+e.Net
	}
	return []option{o}
}

// mostDisplaced is how many pods an action names.
const mostDisplaced = 200
