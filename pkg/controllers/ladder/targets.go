package ladder

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

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

// roomiest is the node with most room for a pod, of those that are preferred: of those where it would not be as crowded, if there are any. Where
// somebody lacks room that does not matter.
func (p *planner) roomiest(uid types.UID) (state.Destination, bool) {
	if p.crowd.lacking(p.before) {
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
