// Package queue shows the orchestration queue: what waits, in its order and for what, what runs, and what was over
// lately.
package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/text"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// readTimeout bounds reading the cluster once.
	readTimeout = 30 * time.Second
	// page is how many objects are asked for at a time.
	page = 500
	// shownOver is how many actions that are over are shown in tables; JSON has them all.
	shownOver = 10
	// shownMessage is how much of a message a narrow table shows.
	shownMessage = 90
)

// View is the queue at a time.
type View struct {
	// Waiting in the order in which they are judged, Running (those being undone too) from the longest, Over from the
	// latest.
	Waiting []Action `json:"waiting"`
	Running []Action `json:"running"`
	Over    []Action `json:"over"`
}

// Action is one line.
type Action struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Phase       string   `json:"phase"`
	For         string   `json:"for"`
	Criticality string   `json:"criticality"`
	Reason      string   `json:"reason"`
	Cause       string   `json:"cause"`
	Attempt     int32    `json:"attempt"`
	Node        string   `json:"node,omitempty"`
	TargetNode  string   `json:"targetNode,omitempty"`
	Pods        []string `json:"pods,omitempty"`
	// Moves are containers and the cores they go to: "<pod's uid>/<container>><core>".
	Moves []string `json:"moves,omitempty"`
	// Displaces are the pods that leave their node with it.
	Displaces  []string `json:"displaces,omitempty"`
	WaitingFor string   `json:"waitingFor,omitempty"`
	Message    string   `json:"message,omitempty"`
	LastError  string   `json:"lastError,omitempty"`
	// Since it was asked for, Entered its phase.
	Since   time.Time `json:"since"`
	Entered time.Time `json:"phaseTime"`
}

// Read asks the API server for every action.
func Read(ctx context.Context, c client.Reader) ([]v1alpha1.RTAction, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var out []v1alpha1.RTAction
	list := &v1alpha1.RTActionList{}
	for {
		err := c.List(ctx, list, client.Limit(page), client.Continue(list.Continue))
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading RTActions: the cluster does not know them; is Mainspring installed there?")
		}
		if err != nil {
			return nil, fmt.Errorf("reading RTActions: %w", err)
		}
		out = append(out, list.Items...)
		if list.Continue == "" {
			return out, nil
		}
	}
}

// Build sorts the actions as the controller does.
func Build(objects []v1alpha1.RTAction, ageStep time.Duration, now time.Time) View {
	lines := map[string]Action{}
	var waiting, running, over []rules.Action
	for i := range objects {
		a, _ := record.Read(&objects[i]) // one that is not valid is shown too, and says so itself
		lines[a.ID] = line(&objects[i], a)
		switch {
		case a.Phase == rules.Waiting:
			waiting = append(waiting, a)
		case a.Phase.Holds():
			running = append(running, a)
		default:
			over = append(over, a)
		}
	}
	rules.Order(waiting, rules.Options{AgeStep: ageStep}, now)
	byTime := func(a, b rules.Action) int {
		if c := a.Entered.Compare(b.Entered); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	}
	slices.SortFunc(running, byTime)
	slices.SortFunc(over, func(a, b rules.Action) int { return byTime(b, a) })
	pick := func(list []rules.Action) []Action {
		out := make([]Action, 0, len(list))
		for _, a := range list {
			out = append(out, lines[a.ID])
		}
		return out
	}
	return View{Waiting: pick(waiting), Running: pick(running), Over: pick(over)}
}

func line(o *v1alpha1.RTAction, a rules.Action) Action {
	out := Action{
		Name: o.Name, Kind: string(o.Spec.Kind), Phase: string(a.Phase), Criticality: a.Criticality.String(),
		For: strings.TrimPrefix(o.Spec.Beneficiary.Namespace+"/"+o.Spec.Beneficiary.Name, "/"), Reason: o.Spec.Reason, Cause: o.Spec.Cause,
		Attempt: o.Spec.Attempt, Node: o.Spec.Node, TargetNode: o.Spec.TargetNode,
		WaitingFor: o.Status.WaitingFor, Message: o.Status.Message, LastError: o.Status.LastError, Since: a.Since, Entered: a.Entered,
	}
	for _, p := range o.Spec.Pods {
		out.Pods = append(out.Pods, p.Namespace+"/"+p.Name)
	}
	for _, m := range o.Spec.Moves {
		out.Moves = append(out.Moves, fmt.Sprintf("%s/%s>%d", m.PodUID, m.Container, m.Core))
	}
	for _, p := range o.Spec.Displaces {
		out.Displaces = append(out.Displaces, p.Namespace+"/"+p.Name)
	}
	return out
}

// JSON writes all of it.
func (v View) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Text writes tables; wide ones have every column and message whole.
func (v View) Text(out io.Writer, wide bool, now time.Time) error {
	var all strings.Builder
	table(&all, text.Plural(len(v.Waiting), "action")+" waiting, in this order", v.Waiting, wide, now)
	table(&all, text.Plural(len(v.Running), "action")+" running", v.Running, wide, now)
	title := text.Plural(len(v.Over), "action") + " over lately"
	if len(v.Over) > shownOver {
		title += fmt.Sprintf(", the last %d of them", shownOver)
	}
	table(&all, title, v.Over[:min(shownOver, len(v.Over))], wide, now)
	_, err := io.WriteString(out, all.String())
	return err
}

func table(out *strings.Builder, title string, actions []Action, wide bool, now time.Time) {
	fmt.Fprintln(out, title)
	if len(actions) == 0 {
		return
	}
	var rows strings.Builder
	t := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	head := "ACTION\tFOR\tCRITICALITY\tNODE\tSTATE\tAGE\tWHY"
	if wide {
		head = "ACTION\tFOR\tCRITICALITY\tNODE\tSTATE\tAGE\tREASON\tATTEMPT\tPODS\tMOVES\tDISPLACES\tWHY"
	}
	fmt.Fprintln(t, head)
	for _, a := range actions {
		cells := []string{a.Name, a.For, a.Criticality, a.where(), a.state(), duration.HumanDuration(max(0, now.Sub(a.Since)))}
		if wide {
			cells = append(cells, a.Reason, fmt.Sprint(a.Attempt), strings.Join(a.Pods, ","), strings.Join(a.Moves, ","), strings.Join(a.Displaces, ","), a.why())
		} else {
			cells = append(cells, shorten(a.why()))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	t.Flush()
	for row := range strings.Lines(rows.String()) {
		out.WriteString("  " + row)
	}
}

func (a Action) where() string {
	switch {
	case a.Node == "" && a.TargetNode == "":
		return "-"
	case a.TargetNode != "":
		return a.Node + ">" + a.TargetNode
	}
	return a.Node
}

// state is the phase, or what a waiting action waits for.
func (a Action) state() string {
	if a.Phase != string(rules.Waiting) || a.WaitingFor == "" {
		return a.Phase
	}
	return a.WaitingFor
}

// why is the message on one line, with the error that is tried again.
func (a Action) why() string {
	out := a.Message
	if a.LastError != "" {
		out = "Trying again: " + a.LastError
	}
	return strings.Join(strings.Fields(out), " ")
}

func shorten(s string) string {
	if runes := []rune(s); len(runes) > shownMessage {
		return string(runes[:shownMessage-3]) + "..."
	}
	return s
}
