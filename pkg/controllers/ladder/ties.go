package ladder

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// mostNamed is how many nodes, or pods, are named of a kind.
const mostNamed = 3

// shut says which other nodes with cores take nobody for now, and why: one that was opened for the pressure may be among them.
func (p *planner) shut() string {
	var out []string
	for n := range p.Snapshot.Nodes() {
		why := n.Shut()
		if why == "" && n.Agent != state.AgentAlive {
			why = "the node's agent has not been heard of"
		}
		if why != "" && n.Name != p.Node.Name && n.Offered && n.UID != "" && !n.Deleting {
			out = append(out, n.Name+": "+why)
		}
	}
	return few("these take nobody now", out)
}

// tied tells whether a pod must stay because whoever takes its place would not be what it is, or cannot. Why is told with the rungs that would move
// it.
func (p *planner) tied(view *state.PodView) bool {
	why := cmp.Or(view.Forsaken(), p.Passage(view, "").Veto)
	if why != "" {
		p.ties[view.UID] = "pod " + view.Key().String() + ": " + why
	}
	return why != ""
}

// chained tells whether a pod must not leave with its node: it takes its state along or stays, and who closes a node does not see to that.
func (p *planner) chained(view *state.PodView) bool {
	bound := p.Passage(view, "").Bound
	if bound {
		p.ties[view.UID] = "pod " + view.Key().String() + ": its MigrationPolicy requires its state, which does not come along when a node is closed"
	}
	return bound
}

// staysWithNode tells whether a pod keeps its node from being closed.
func (p *planner) staysWithNode(view *state.PodView) bool {
	return p.tied(view) || p.chained(view) || p.barred(view)
}

// staying says which pods must stay where the rung that was looked at last would have them go, and why.
func (p *planner) staying() string {
	var out []string
	for _, why := range p.ties {
		out = append(out, why)
	}
	return few("these must stay", out)
}

// bereft says of whom of a set the pod in its place has no budget, and why. They are evicted all the same: to be governed by name must not keep a
// pod from making room for a more critical one.
func (p *planner) bereft(set []types.UID) string {
	var out []string
	for _, uid := range set {
		if view, ok := p.Snapshot.Pod(uid); ok && view.Remade && view.Forsaken() != "" {
			out = append(out, "pod "+view.Key().String()+": "+view.Forsaken())
		}
	}
	return few("without budget from then on", out)
}

// anew says that a pod begins anew where it goes, though its state was to come along, and why.
func (p *planner) anew(uid types.UID, node string) string {
	if why := p.passage(uid, node).Anew; why != "" {
		return " (where it begins anew: " + why + ")"
	}
	return ""
}

// few names some of a list, in brackets behind what they are; nothing of an empty one.
func few(what string, list []string) string {
	slices.Sort(list)
	switch {
	case len(list) == 0:
		return ""
	case len(list) > mostNamed: // how many others is not told, as that changes all the time in a storm, and each change is told
		list = append(list[:mostNamed], "and others")
	}
	return " (" + what + ": " + strings.Join(list, ", ") + ")"
}
