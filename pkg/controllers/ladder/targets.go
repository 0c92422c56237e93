package ladder

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// destination is where a pod would go, computed once per group.
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

// roomiest is the preferred node with most room for a pod. Nodes where the pod would not be as crowded come first. If an
// affected container lacks room, crowding does not matter.
func (p *planner) roomiest(uid types.UID) (state.Destination, bool) {
	if p.contention.lacking(p.before) {
		return p.roomiestOf(uid, func(*state.NodeView) bool { return true })
	}
	if d, ok := p.roomiestOf(uid, func(n *state.NodeView) bool { return !p.crowdsAt(uid, n) }); ok {
		return d, true
	}
	return p.roomiestOf(uid, func(*state.NodeView) bool { return true })
}

func (p *planner) roomiestOf(uid types.UID, among state.NodeFilter) (state.Destination, bool) {
	return preferred(p, []types.UID{uid}, func(avoid func(types.UID, string) bool) (state.Destination, bool) {
		return p.Snapshot.Destination(uid, func(n *state.NodeView) bool { return among(n) && p.suits(uid, n) && !avoid(uid, n.Name) })
	})
}

// preferred finds the destinations of pods. It prefers nodes to which they can take their state, if they are to, and that had
// room at earlier attempts. If there are none, a pod goes without its state rather than to a node that was full; otherwise to
// any node.
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

// loses tells whether a pod would lose its state on a node, and perhaps not on another.
func (p *planner) loses(uid types.UID, node string) bool {
	way := p.passage(uid, node)
	return way.Anew != "" && !way.Anywhere
}

// targets is to how many nodes the planner moves a pod for one pressure, one after another, while they have no room for it when
// its turn comes.
const targets = 3

// full are the nodes that had no room for a pod when it was to go there for this pressure. It is empty once there were too many.
func (p *planner) full(uid types.UID) []string {
	var out []string
	for _, o := range p.Answers {
		node, undone := o.Status.Progress[v1alpha1.ProgressElsewhere], phaseOf(o) == rules.RolledBack && !o.Status.Unwanted
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

// passage is how a pod would go to a node. It asks about the node only if the node matters: an objection to any move of the pod
// holds for every node.
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

// suits tells whether a node may take a pod beside others that come there, apart from its cores.
func (p *planner) suits(uid types.UID, n *state.NodeView, coming ...*state.PodView) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && n.Agent == state.AgentAlive && !n.Tainted(mcv1.TaintPressure) && p.Fits(n.Name, append(slices.Clip(coming), view)...) &&
		p.passage(uid, n.Name).Veto == ""
}
