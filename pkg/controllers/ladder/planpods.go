package ladder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// migrations are the pods that may go to another node: neighbours of those who suffer, all in the way of somebody who
// lacks room, of whom the first goes now, or one who suffers itself.
func (p *planner) migrations() []option {
	var out []option
	for _, set := range p.sets(p.movable) {
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

// migration has the first of a set go, where all of them find cores elsewhere.
func (p *planner) migration(set []types.UID) (option, bool) {
	d, ok := p.allMove(set)
	if !ok {
		return option{}, false
	}
	o := option{Pods: set[:1], Target: d.Node, What: "moving " + p.names(set[:1]) + " to node " + d.Node + p.anew(set[0], d.Node)}
	o.effect, o.price = p.gone(set)
	o.Crowds = p.overfills(set[0], d)
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

// overfills tells whether a pod would find no more room where it goes than there is where it comes from.
func (p *planner) overfills(uid types.UID, d state.Destination) bool {
	for _, s := range p.pods[uid] {
		in := s.InForce()
		if p.roomAt(d, s.ID)-in.Charge(p.Node.Granularity) <= p.crowd.left(p.before, s.Physical, "") {
			return true
		}
	}
	return false
}

// movable tells whether a pod may be moved to another node: somebody makes it again, no McKube of it forbids it, it was not moved for this cause,
// and nothing ties it to the node.
func (p *planner) movable(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && view.Owned && mayLeave(p.pods[uid]) && p.free(uid) && !p.tied(view)
}

func mayLeave(servers []*state.ServerView) bool {
	return !slices.ContainsFunc(servers, func(s *state.ServerView) bool {
		m := s.McKube.Spec.Migration
		return m != nil && m.Policy == mcv1.MigrationNever
	})
}

// destination is where a pod would go, which is worked out once.
func (p *planner) destination(uid types.UID) (state.Destination, bool) {
	known, asked := p.goes[uid]
	if !asked {
		found, ok := p.roomiest(uid)
		if ok {
			known = &found
		}
		p.goes[uid] = known
	}
	if known == nil {
		return state.Destination{}, false
	}
	return *known, true
}

// roomiest is the node with most room for a pod, of those that are preferred.
func (p *planner) roomiest(uid types.UID) (state.Destination, bool) {
	return preferred(p, []types.UID{uid}, func(avoid func(types.UID, string) bool) (state.Destination, bool) {
		return p.Snapshot.Destination(uid, func(n *state.NodeView) bool { return p.suits(uid, n) && !avoid(uid, n.Name) })
	})
}

// preferred finds where pods go: to nodes to which they can take their state, where they are to, and that had room when they were to go there
// before; where there are none, without the state rather than to one that was full; else to any.
func preferred[T any](p *planner, pods []types.UID, find func(avoid func(types.UID, string) bool) (T, bool)) (found T, ok bool) {
	full := map[types.UID][]string{}
	for _, uid := range pods {
		full[uid] = p.full(uid)
	}
	wasFull := func(uid types.UID, node string) bool { return slices.Contains(full[uid], node) }
	for _, avoid := range []func(types.UID, string) bool{
		func(uid types.UID, node string) bool { return wasFull(uid, node) || p.loses(uid, node) },
		wasFull,
		func(types.UID, string) bool { return false },
	} {
		avoided := false
		found, ok = find(func(uid types.UID, node string) bool {
			no := avoid(uid, node)
			avoided = avoided || no
			return no
		})
		if ok || !avoided {
			break
		}
	}
	return found, ok
}

// loses tells whether a pod would begin anew on a node, and perhaps not on another.
func (p *planner) loses(uid types.UID, node string) bool {
	way := p.passage(uid, node)
	return way.Anew != "" && !way.Anywhere
}

// targets is to how many nodes a pod is to go for one pressure, one after another, while they have no room for it when its turn comes.
const targets = 3

// full are the nodes that had no room for a pod when it was to go there for this pressure; none any longer once that were many.
func (p *planner) full(uid types.UID) []string {
	var out []string
	for _, o := range p.Answers {
		node, undone := o.Status.Progress[state.ProgressElsewhere], phaseOf(o) == rules.RolledBack && !o.Status.Unwanted
		if node != "" && undone && len(o.Spec.Pods) == 1 && o.Spec.Pods[0].UID == uid {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) >= targets {
		return nil
	}
	return out
}

// passage is how a pod would go to a node. Of which node is asked only where that matters: what is in its way on its own keeps it from each.
func (p *planner) passage(uid types.UID, node string) Passage {
	view, ok := p.Snapshot.Pod(uid)
	if !ok {
		return Passage{Veto: "the pod is gone"}
	}
	if found := p.Passage(view, ""); found.Veto != "" || found.Anywhere || node == "" {
		return found
	}
	return p.Passage(view, node)
}

// suits tells whether a node may take a pod beside others that come there, whatever its cores say.
func (p *planner) suits(uid types.UID, n *state.NodeView, coming ...*state.PodView) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && n.Agent == state.AgentAlive && !n.Tainted(mcv1.TaintPressure) && p.Fits(n.Name, append(slices.Clip(coming), view)...) &&
		p.passage(uid, n.Name).Veto == ""
}

// roomAt is the bandwidth that the others leave to a server where it would go.
func (p *planner) roomAt(d state.Destination, id string) rt.PPM {
	n, ok := p.Snapshot.NodeView(d.Node)
	if !ok {
		return 0
	}
	core, ok := n.Core(d.Cores[id])
	if !ok {
		return 0
	}
	return core.Free
}

// leaves is what it brings when one who suffers goes to where so much is left to it. To leave a node on which deadlines
// are missed is of use by itself: it may be the node that is late. It was not, if the container was late on another, too:
// then leaving brings nothing.
func (p *planner) leaves(s Sufferer, room rt.PPM) effect {
	if p.wandering(s) {
		return effect{}
	}
	out := effect{Relief: room - p.crowd.room(p.before, s)}
	if !p.crowd.passes(p.before, s) {
		out.Cured = 1
	}
	if s.Source == SourceMisses {
		out.Relief = max(out.Relief, worthwhile)
	}
	out.Net = out.Relief
	return out
}

// preemptions are the pods that may be evicted for good: all strictly less critical than those who suffer.
func (p *planner) preemptions() []option {
	var out []option
	for _, set := range p.sets(p.evictable) {
		o := option{Pods: set, What: "evicting " + p.names(set) + p.bereft(set)}
		o.effect, o.price = p.gone(set)
		out = append(out, o)
	}
	return out
}

// evictable tells whether a pod may be evicted for those who suffer, and stays away then.
func (p *planner) evictable(uid types.UID) bool {
	return criticalityOf(p.pods[uid]) < p.crowd.sufferers[0].Criticality && p.free(uid) && !p.returns(uid)
}

// returns tells whether a pod that is evicted is made again where it was: it tolerates the taint, so that nothing keeps it off. It would be evicted
// again, as another pod, for as long as the pressure lasts.
func (p *planner) returns(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && view.Remade && view.Tolerates(corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoSchedule})
}

// openings are the pods whose leaving would help if another node had room for them: they find none, or none where they would not be as crowded.
func (p *planner) openings() []option {
	var out []option
	lacking := p.crowd.lacking(p.before)
	for _, set := range p.sets(p.movable) {
		if o, ok := p.migration(set); ok && o.helps(lacking) {
			continue
		}
		o := option{Pods: set, What: "opening a node for " + p.names(set)}
		o.effect, o.price = p.gone(set)
		out = append(out, o)
	}
	for _, s := range p.crowd.sufferers {
		if o, ok := p.departure(s); !p.movable(s.PodUID) || ok && o.helps(lacking) {
			continue
		}
		o := option{Pods: []types.UID{s.PodUID}, leavers: []types.UID{s.PodUID}, price: priceOf(p.Node, p.pods[s.PodUID])}
		o.What = "opening a node for " + p.names(o.Pods)
		o.effect = p.leaves(s, p.most())
		out = append(out, o)
	}
	return out
}

// most is what a core of another node would leave to somebody alone there, as far as is known: as much as one of this node.
func (p *planner) most() rt.PPM {
	out := rt.PPM(0)
	for _, core := range p.crowd.cores {
		out = max(out, core.Capacity)
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
		if !ok || !view.Owned || !mayLeave(p.pods[uid]) || p.Held(uid) || criticalityOf(p.pods[uid]) > p.crowd.sufferers[0].Criticality {
			return nil
		}
		o.price += priceOf(p.Node, p.pods[uid])
		switch {
		case view.Deleting:
			continue // it goes in any case
		case p.tied(view) || p.chained(view):
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
