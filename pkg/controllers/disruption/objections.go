package disruption

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Reasons for which a node is left alone; the first three are the label reason of mainspring_disruption_refusals_total.
const (
	// ReasonActionInFlight: an action of the orchestration queue has the node, or a pod of it, in hand, or is to have the place in the budget.
	ReasonActionInFlight = "ActionInFlight"
	// ReasonEscalated: a container there has a raised budget.
	ReasonEscalated = "ContainerEscalated"
	// ReasonNoCore: a real-time container there would find no core elsewhere, by the admission test.
	ReasonNoCore = "NoCoreElsewhere"
	// ReasonBuffer: it may have been opened for a CapacityBuffer.
	ReasonBuffer = "CapacityBufferNotCounted"
	// ReasonHigh: a container of criticality High has come to a node that is repacked.
	ReasonHigh = "HighContainer"
	// ReasonNotEvicted: a pod of a node that is to be deleted may not be evicted.
	ReasonNotEvicted = "PodMayNotBeEvicted"
)

// refusals lists those for which a node is not chosen, keeps those for which one is not deleted that was; they are the label reason of
// mainspring_disruption_held_nodes.
var (
	refusals = []string{ReasonActionInFlight, ReasonEscalated, ReasonNoCore}
	keeps    = []string{ReasonActionInFlight, ReasonEscalated, ReasonNoCore, ReasonHigh, ReasonNotEvicted}
)

// objection is why a node may not be closed now.
type objection struct{ node, reason, message string }

// held is what actions have in hand: their names by node, and by UID of the pod.
type held struct {
	nodes map[string]string
	pods  map[types.UID]string
}

// inHand gathers what actions that run, or are being undone, hold. The action except does not count.
func inHand(actions []*v1alpha1.RTAction, except string) held {
	out := held{nodes: map[string]string{}, pods: map[types.UID]string{}}
	for _, a := range actions {
		if a.Name == except {
			continue
		}
		for _, u := range record.Uses(a.Spec) {
			switch u.Resource {
			case rules.Node:
				out.nodes[u.Name] = a.Name
			case rules.Pod:
				out.pods[types.UID(u.Name)] = a.Name
			}
		}
	}
	return out
}

// busy is the objection to closing a node at this moment, whatever becomes of its pods; nil for none. A container in
// escalation is one only where escalated is set, and while an agent says that it still is.
func (h held) busy(s *state.Snapshot, node string, escalated bool) *objection {
	if action, ok := h.nodes[node]; ok {
		return &objection{node, ReasonActionInFlight, fmt.Sprintf("action %s has node %s in hand", action, node)}
	}
	n, ok := s.NodeView(node)
	if !ok {
		return nil
	}
	for i := range n.Servers {
		v := &n.Servers[i]
		if action, ok := h.pods[v.PodUID]; ok {
			return &objection{node, ReasonActionInFlight, fmt.Sprintf("action %s has pod %s/%s in hand", action, v.Namespace, v.Pod)}
		}
		if escalated && n.Agent != state.AgentSilent && v.Escalated() {
			return &objection{node, ReasonEscalated, fmt.Sprintf("container %s of pod %s/%s has a raised budget", v.Container, v.Namespace, v.Pod)}
		}
	}
	return nil
}

// homeless are the objections to closing nodes together, at most one for each: their real-time containers that would
// find no core. Pods for which elsewhere is true have room on nodes still to come; what others have beside cores is for room to say.
func homeless(s *state.Snapshot, nodes []string, elsewhere map[types.UID]bool, room state.Room) []objection {
	broken := map[string][]string{}
	at := map[string]string{}
	for _, name := range nodes {
		n, ok := s.NodeView(name)
		if !ok {
			continue
		}
		for _, v := range n.Servers {
			at[v.ID] = name
		}
	}
	for _, v := range s.BreaksAll(nodes, elsewhere, room) {
		broken[at[v.ID]] = append(broken[at[v.ID]], containerOf(v))
	}
	var out []objection
	beside := ""
	if room != nil {
		beside = ", and what else its pod asks for"
	}
	for _, name := range nodes {
		if list := broken[name]; len(list) > 0 {
			out = append(out, objection{name, ReasonNoCore, fmt.Sprintf("no other node has a core that admits %s%s", few(list), beside)})
		}
	}
	return out
}

// losesBudget returns which real-time pod a McKube would not reach in its new place if the node went away: the pod would be
// without its budget there. Empty: none.
func losesBudget(s *state.Snapshot, node string) string {
	n, ok := s.NodeView(node)
	if !ok {
		return ""
	}
	for i := range n.Servers {
		if pod, ok := s.Pod(n.Servers[i].PodUID); ok && pod.Owned && !pod.Deleting && !pod.Finished() && pod.LosesBudget() != "" {
			return fmt.Sprintf("pod %s/%s must stay: %s", pod.Namespace, pod.Name, pod.LosesBudget())
		}
	}
	return ""
}

// governed tells whether the node has real-time work.
func governed(s *state.Snapshot, node string) bool {
	n, ok := s.NodeView(node)
	return ok && slices.ContainsFunc(n.Servers, func(v state.ServerView) bool { return v.McKube != nil })
}

func containerOf(v state.ServerView) string {
	return fmt.Sprintf("container %s of pod %s/%s", v.Container, v.Namespace, v.Pod)
}

// few names the first of a list.
func few(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
