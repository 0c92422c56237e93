package ladder

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// mostNamed is how many nodes, or pods, a message names.
const mostNamed = 3

// shut describes which other nodes with cores accept no pods now, and why. A node that was opened for the pressure may be among
// them.
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

// tied tells whether a pod must stay because its replacement would not be equivalent, or because it cannot move. The planner
// reports the reason with the levels that would move the pod.
func (p *planner) tied(view *state.PodView) bool {
	why := cmp.Or(view.LosesBudget(), p.Passage(view, "").Veto)
	if why != "" {
		p.ties[view.UID] = "pod " + view.Key().String() + ": " + why
	}
	return why != ""
}

// boundByState tells whether a pod must not leave with its node: it takes its state along or stays, and the controller that
// closes a node does not move state.
func (p *planner) boundByState(view *state.PodView) bool {
	bound := p.Passage(view, "").Bound
	if bound {
		p.ties[view.UID] = "pod " + view.Key().String() + ": its MigrationPolicy requires its state, which does not come along when a node is closed"
	}
	return bound
}

// staysWithNode tells whether a pod prevents the deletion of its node.
func (p *planner) staysWithNode(view *state.PodView) bool {
	return p.tied(view) || p.boundByState(view) || p.barred(view)
}

// staying describes which pods must stay that the last level would move, and why.
func (p *planner) staying() string {
	var out []string
	for _, why := range p.ties {
		out = append(out, why)
	}
	return few("these must stay", out)
}

// withoutBudget describes which pods of a set have replacements without a budget, and why. The executor evicts them all the
// same: a McKube that governs a pod by its name must not keep the pod from making room for a more critical one.
func (p *planner) withoutBudget(set []types.UID) string {
	var out []string
	for _, uid := range set {
		if view, ok := p.Snapshot.Pod(uid); ok && view.Remade && view.LosesBudget() != "" {
			out = append(out, "pod "+view.Key().String()+": "+view.LosesBudget())
		}
	}
	return few("without budget from then on", out)
}

// anew describes why a pod loses its state where it goes, although it was to take the state along.
func (p *planner) anew(uid types.UID, node string) string {
	if why := p.passage(uid, node).Anew; why != "" {
		return " (where it begins anew: " + why + ")"
	}
	return ""
}

// few names some entries of a list, in brackets behind what they are. It is empty for an empty list.
func few(what string, list []string) string {
	slices.Sort(list)
	switch {
	case len(list) == 0:
		return ""
	case len(list) > mostNamed: // without the number of others: in a storm it changes all the time, and each change would be published
		list = append(list[:mostNamed], "and others")
	}
	return " (" + what + ": " + strings.Join(list, ", ") + ")"
}
