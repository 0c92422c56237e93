package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// NodeExplanation is what is known of a node's real-time pressure, and what is done about it.
type NodeExplanation struct {
	Node string `json:"node"`
	UID  string `json:"uid"`
	// Stage is the source of the pressure or, on the way back from it, how far that is; empty: there is none.
	Stage   string    `json:"stage,omitempty"`
	Begun   time.Time `json:"begun,omitzero"`
	Message string    `json:"message,omitempty"`
	// Tainted: the scheduler leaves the node alone.
	Tainted bool       `json:"tainted"`
	Agent   string     `json:"agent"`
	Cores   []NodeCore `json:"cores"`
	// Actions for this pressure and its recovery, in the order in which they were asked for.
	Actions []NodeAction `json:"actions,omitempty"`
	Events  []Event      `json:"events,omitempty"`
}

// NodeCore is a core with what runs on it, in parts per million of it.
type NodeCore struct {
	Core     int          `json:"core"`
	Capacity rt.PPM       `json:"capacityPpm"`
	Placed   rt.PPM       `json:"placedPpm"`
	Claimed  rt.PPM       `json:"claimedPpm"`
	Servers  []NodeServer `json:"servers,omitempty"`
}

// NodeServer is a container on a core.
type NodeServer struct {
	Container   string `json:"container"`
	Criticality string `json:"criticality"`
	BudgetUs    int64  `json:"budgetUs,omitempty"`
	Level       string `json:"level,omitempty"`
	Overruns    int64  `json:"overruns"`
	Misses      int64  `json:"misses"`
}

// NodeAction is what is, or was, done about the pressure.
type NodeAction struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Rung    int    `json:"rung"`
	Reason  string `json:"reason"`
	Phase   string `json:"phase"`
	Why     string `json:"why"`
	Message string `json:"message,omitempty"`
}

// Node explains a node. The error says that it has no real-time cores.
func Node(s *state.Snapshot, name string) (NodeExplanation, error) {
	n, ok := s.NodeView(name)
	if !ok {
		return NodeExplanation{}, fmt.Errorf("node %s not found among those with real-time cores or containers", name)
	}
	out := NodeExplanation{Node: name, UID: string(n.UID), Tainted: n.Tainted(mcv1.TaintPressure), Agent: string(n.Agent)}
	if n.RTNode != nil {
		if c := meta.FindStatusCondition(n.RTNode.Status.Conditions, v1alpha1.ConditionRTPressure); c != nil && c.Status == metav1.ConditionTrue {
			out.Stage, out.Begun, out.Message = c.Reason, c.LastTransitionTime.Time, c.Message
		}
	}
	for _, c := range n.Cores {
		out.Cores = append(out.Cores, NodeCore{Core: c.ID, Capacity: c.Capacity, Placed: c.Placed, Claimed: c.Claimed, Servers: serversOn(n, c.ID)})
	}
	return out, nil
}

func serversOn(n *state.NodeView, core int) []NodeServer {
	var out []NodeServer
	for _, s := range n.Servers {
		if s.Physical != core {
			continue
		}
		one := NodeServer{Container: s.Namespace + "/" + s.Pod + "/" + s.Container, Criticality: s.Criticality.String()}
		if a := s.Applied; a != nil {
			one.BudgetUs, one.Level, one.Overruns, one.Misses = a.BudgetUs, a.Level, a.Overruns, a.Misses
		}
		out = append(out, one)
	}
	return out
}

// AddActions adds what is done about the pressure that the node is under.
func (e *NodeExplanation) AddActions(ctx context.Context, c client.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var r v1alpha1.RTNode
	if err := c.Get(ctx, client.ObjectKey{Name: e.Node}, &r); err != nil || e.Stage == "" {
		return client.IgnoreNotFound(err)
	}
	causes := []string{v1alpha1.PressureCause(r.UID, e.Begun), v1alpha1.LastResortCause(r.UID, e.Begun), v1alpha1.RecoveryCause(r.UID, e.Begun)}
	var list v1alpha1.RTActionList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("reading RTActions: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.RTAction) int {
		first, _ := record.Read(&a) // for their times
		second, _ := record.Read(&b)
		return cmp.Or(first.Since.Compare(second.Since), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range list.Items {
		if !slices.Contains(causes, o.Spec.Cause) {
			continue
		}
		kind := rules.Kind(o.Spec.Kind)
		e.Actions = append(e.Actions, NodeAction{
			Name: o.Name, Kind: string(kind), Rung: kind.Rung(), Reason: o.Spec.Reason, Phase: cmp.Or(string(o.Status.Phase), string(rules.Waiting)),
			Why: o.Spec.Message, Message: cmp.Or(o.Status.Message, o.Status.LastError),
		})
	}
	return nil
}

// AddEvents adds the latest events about the node.
func (e *NodeExplanation) AddEvents(ctx context.Context, c client.Reader) error {
	like := Explanation{UID: e.UID}
	err := like.AddEvents(ctx, c)
	e.Events = like.Events
	return err
}

// JSON writes the explanation for machines.
func (e NodeExplanation) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(e)
}

// Text writes the explanation for people: the answer first, then who runs where, and what is done.
func (e NodeExplanation) Text(w io.Writer) error {
	var out strings.Builder
	out.WriteString(e.headline() + "\n\n")
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CORE\tPLACED\tCLAIMED\tOF\tCONTAINER\tCRITICALITY\tBUDGET\tOVERRUNS\tMISSES")
	for _, c := range e.Cores {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t\t\t\t\t\n", c.Core, percent(c.Placed), percent(c.Claimed), percent(c.Capacity))
		for _, s := range c.Servers {
			fmt.Fprintf(t, "\t\t\t\t%s\t%s\t%d us (%s)\t%d\t%d\n", s.Container, s.Criticality, s.BudgetUs, cmp.Or(s.Level, "not applied"), s.Overruns, s.Misses)
		}
	}
	t.Flush()
	if len(e.Actions) > 0 {
		out.WriteString("\nwhat is done about it, in this order\n")
	}
	for _, a := range e.Actions {
		fmt.Fprintf(&out, "  %-11s  rung %d %s (%s), action %s\n%s%s\n", a.Phase, a.Rung, a.Kind, a.Reason, a.Name, indent, a.Why)
		if a.Message != "" {
			fmt.Fprintf(&out, "%s%s\n", indent, a.Message)
		}
	}
	if len(e.Events) > 0 {
		out.WriteString("\nlatest events of the node\n")
	}
	for _, event := range e.Events {
		fmt.Fprintf(&out, "  %-7s  %s (%s): %s\n", event.Type, event.Reason, event.Source, event.Message)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (e NodeExplanation) headline() string {
	taint := "without its taint"
	if e.Tainted {
		taint = "with taint " + mcv1.TaintPressure
	}
	switch e.Stage {
	case "":
		return fmt.Sprintf("Node %s is under no real-time pressure; its agent is %s.", e.Node, e.Agent)
	case v1alpha1.PressureEased, v1alpha1.PressureRecovering, v1alpha1.PressureLifting:
		return fmt.Sprintf("Node %s was under real-time pressure since %s and is on the way back (%s), %s: %s.", e.Node, e.Begun.UTC().Format(time.RFC3339), e.Stage, taint, e.Message)
	}
	return fmt.Sprintf("Node %s is under real-time pressure since %s (%s), %s: %s.", e.Node, e.Begun.UTC().Format(time.RFC3339), e.Stage, taint, e.Message)
}
