package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mainspring-rt/mainspring/pkg/cli/text"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// shownNodes is how many answers of nodes the text shows of a gate; JSON has all.
const shownNodes = 10

// indent is that of what belongs to a gate.
const indent = "        "

// path is the order of the gates that every container passes, for those that were not reached.
var path = []string{state.GateMcKube, state.GateSettings, state.GateClaim, state.GateCore, state.GateNode, state.GateAgent, state.GatePlaced, state.GateConfigured}

// Explanation is what is known of a pod's way to its cores.
type Explanation struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Phase     string `json:"phase"`
	Node      string `json:"node,omitempty"`
	// Ready: every gate is passed.
	Ready bool `json:"ready"`
	// Reason and Message are those of the first gate that is not passed; empty when all are.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Gates in order, container by container, each up to the first that is not passed.
	Gates []state.Gate `json:"gates"`
	// Events are the latest about the pod, the newest first.
	Events []Event `json:"events,omitempty"`
}

// Pod explains a pod. The error says that there is none.
func Pod(s *state.Snapshot, namespace, name string) (Explanation, error) {
	pod, ok := s.PodNamed(namespace, name)
	if !ok {
		return Explanation{}, fmt.Errorf("pod %s/%s not found", namespace, name)
	}
	out := Explanation{
		Namespace: namespace, Pod: name, UID: string(pod.UID), Phase: string(pod.Phase), Node: pod.NodeName,
		Gates: state.Gates(s, pod),
	}
	blocking, waits := state.Blocking(out.Gates)
	out.Ready = !waits
	if waits {
		out.Reason, out.Message = blocking.Reason, blocking.Message
	}
	return out, nil
}

// JSON writes the explanation for machines.
func (e Explanation) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(e)
}

// Text writes the explanation for people: the answer first, then how it came about.
func (e Explanation) Text(w io.Writer) error {
	var out strings.Builder
	out.WriteString(e.headline() + "\n")
	for _, container := range e.containers() {
		if container != "" {
			fmt.Fprintf(&out, "\ncontainer %s\n", container)
		} else {
			out.WriteString("\npod\n")
		}
		e.container(&out, container)
	}
	if len(e.Events) > 0 {
		out.WriteString("\nlatest events of the pod\n")
	}
	for _, event := range e.Events {
		fmt.Fprintf(&out, "  %-7s  %s (%s): %s\n", event.Type, event.Reason, event.Source, event.Message)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (e Explanation) headline() string {
	subject := fmt.Sprintf("Pod %s/%s", e.Namespace, e.Pod)
	switch {
	case e.Ready:
		return fmt.Sprintf("%s runs on node %s as asked.", subject, e.Node)
	case e.Reason == state.ReasonNoMcKube:
		return fmt.Sprintf("%s has no real-time settings: %s.", subject, e.Message)
	case e.Node != "":
		return fmt.Sprintf("%s is on node %s, but not as asked (%s): %s.", subject, e.Node, e.Reason, e.Message)
	default:
		return fmt.Sprintf("%s waits (%s): %s.", subject, e.Reason, e.Message)
	}
}

// containers are those that gates are about, in order.
func (e Explanation) containers() []string {
	var out []string
	for _, g := range e.Gates {
		if !slices.Contains(out, g.Container) {
			out = append(out, g.Container)
		}
	}
	return out
}

func (e Explanation) container(out *strings.Builder, container string) {
	stopped := false
	var seen []string
	for _, g := range e.Gates {
		if g.Container != container {
			continue
		}
		mark := "ok"
		switch {
		case !g.OK && stopped:
			mark = "then"
		case !g.OK:
			mark, stopped = "STOP", true
		}
		fmt.Fprintf(out, "  %-4s  %-15s  %s%s\n", mark, g.Name, word(g), g.Message)
		seen = append(seen, g.Name)
		table(out, g)
	}
	if !stopped || container == "" {
		return
	}
	ahead := slices.DeleteFunc(slices.Clone(path), func(name string) bool { return slices.Contains(seen, name) })
	if len(ahead) > 0 {
		fmt.Fprintf(out, "%snot reached yet: %s\n", indent, strings.Join(ahead, ", "))
	}
}

// word is the gate's reason where it says more than that the gate is passed.
func word(g state.Gate) string {
	if g.Reason == state.ReasonPassed {
		return ""
	}
	return g.Reason + ": "
}

// table shows the answers of nodes: those that fit, then those that came nearest. What one core said
// that takes the server is in the message already.
func table(out *strings.Builder, g state.Gate) {
	if len(g.Numbers) == 0 || len(g.Numbers) == 1 && g.OK {
		return
	}
	var rows strings.Builder
	t := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tCORES\tBEST CORE\tNEEDS\tFREE\tOF\tTEST\tANSWER")
	for _, n := range g.Numbers[:min(shownNodes, len(g.Numbers))] {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", n.Node, n.Cores, n.Core, percent(n.Need), percent(n.Free), percent(n.Limit), n.Test, answer(n))
	}
	t.Flush()
	if more := len(g.Numbers) - shownNodes; more > 0 {
		fmt.Fprintf(&rows, "and %s more (-o json has them all)\n", text.Plural(more, "answer"))
	}
	for line := range strings.Lines(rows.String()) {
		out.WriteString(indent + line)
	}
}

func answer(n state.Number) string {
	if n.Detail == "" {
		return n.Reason
	}
	return n.Reason + ": " + n.Detail
}

func percent(v rt.PPM) string { return fmt.Sprintf("%.1f %%", float64(v)/float64(rt.OneCore)*100) }
