package view_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func frame(nodes int) view.Frame {
	f := view.Frame{
		Title: "demo", Elapsed: 75 * time.Second, Limit: 6 * time.Minute, Dollars: 0.0123, KWh: 0.004,
		State: observe.State{At: now, Pending: 2, Running: 40},
		Steps: []view.Step{
			{Title: "scale-up", Status: view.Done, Took: 12 * time.Second, Outcome: "40 pods run"},
			{Title: "consolidation", Status: view.Running, Took: 3 * time.Second, Doing: "Half of the work ends. Look for nodes that leave."},
			{Title: "drift", Status: view.Waiting},
		},
		Decisions: []observe.Decision{
			{At: now, Kind: observe.Opened, Node: "general-a", Text: "opened c-4x", Count: 1},
			{At: now, Kind: observe.Closing, Node: "general-b", Text: "closing: empty", Count: 3},
		},
	}
	for i := range nodes {
		f.State.Nodes = append(f.State.Nodes, observe.Node{
			Name: fmt.Sprintf("node-%d", i), Claim: fmt.Sprintf("general-%d", i), Pool: []string{"general", "steady"}[i%2], Type: "c-4x-amd64-linux",
			CapacityType: "spot", Zone: "test-zone-a", Phase: observe.Ready, Created: now.Add(-time.Minute), Price: 0.1, Power: powermodel.Machine{Host: powermodel.Range{Idle: 10, Max: 30}},
			CPU: observe.Amount{Requested: 2, Capacity: 4}, Pods: 5,
		})
	}
	return f
}

func TestRenderShowsTheStory(t *testing.T) {
	t.Parallel()
	text := ansi.Strip(view.Render(frame(2), 140, 40))
	for _, want := range []string{
		"01:15 of at most 06:00", "2 nodes", "40 pods running", "2 pending", "$0.200 /h", "40 W", "50% CPU requested",
		"✔ 1 scale-up", "▶ 2 consolidation", "Look for nodes that leave.", "· 3 drift",
		"general  1 node ", "c-4x-amd64-linux            spot       test-zone-a     0.100     20    60s ▰▰▰▰▰▱▱▱▱▱  50%    5  ready",
		"open     general-a  opened c-4x", "closing: empty (3 times)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// Whatever the size and the number of nodes, nothing overflows the terminal.
func TestRenderFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(60, 250).Draw(t, "width"), rapid.IntRange(16, 100).Draw(t, "height")
		f := cores(frame(rapid.IntRange(0, 200).Draw(t, "nodes")), rapid.IntRange(1, 60).Draw(t, "cores"))
		f.Progress = view.Progress{Done: rapid.IntRange(0, 10).Draw(t, "done"), Total: rapid.IntRange(0, 5).Draw(t, "total"), Words: "pods"}
		f.Notice = rapid.SampledFrom([]string{"", "stopping"}).Draw(t, "notice")
		lines := strings.Split(view.Render(f, width, height), "\n")
		if len(lines) > height {
			t.Fatalf("%d lines on a terminal of %d", len(lines), height)
		}
		for _, line := range lines {
			if w := ansi.StringWidth(line); w > width {
				t.Fatalf("a line of %d columns on a terminal of %d: %s", w, width, line)
			}
		}
	})
}

func TestModelStopsOnce(t *testing.T) {
	t.Parallel()
	stops := 0
	var m tea.Model = view.NewModel(func() view.Frame { return frame(1) }, func() { stops++ })
	for range 2 {
		m, _ = m.Update(tea.KeyMsg{Type: tea.KeyCtrlC})
	}
	if stops != 1 {
		t.Errorf("stop was called %d times", stops)
	}
	if !strings.Contains(m.View(), "Stopping") {
		t.Errorf("the view does not tell that it stops")
	}
}

func TestModelTakesTheSize(t *testing.T) {
	t.Parallel()
	var m tea.Model = view.NewModel(func() view.Frame { return frame(100) }, func() {})
	m, _ = m.Update(tea.WindowSizeMsg{Width: 80, Height: 20})
	if lines := strings.Count(m.View(), "\n") + 1; lines > 20 {
		t.Errorf("%d lines", lines)
	}
}

func TestPrinterTellsOnlyNews(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := view.NewPrinter(&out)
	f := frame(1)
	p.Print(f)
	first := out.String()
	for _, want := range []string{
		"01:15  [1/3] scale-up: done after 12.0 s: 40 pods run\n", "[2/3] consolidation: Half of the work ends.",
		"open     general-a  opened c-4x", "1 nodes, 40 pods running, 2 pending, $0.100/h, 20 W",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is missing in\n%s", want, first)
		}
	}
	out.Reset()
	f.Elapsed += time.Second
	p.Print(f)
	if out.Len() != 0 {
		t.Errorf("nothing is new, but it printed %q", out.String())
	}
	f.Decisions = append(f.Decisions, observe.Decision{At: now, Kind: observe.Gone, Node: "general-b", Text: "gone", Count: 1})
	f.Steps[1].Status, f.Steps[1].Outcome = view.Failed, "still 4 nodes"
	p.Print(f)
	want := "01:16  [2/3] consolidation: FAILED after 3.0 s: still 4 nodes\n01:16    gone     general-b  gone\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// cores adds a node with real-time work to a frame.
func cores(f view.Frame, n int) view.Frame {
	node := observe.Node{Name: "edge", Claim: "edge-0", Pool: "edge", Phase: observe.Ready, Created: now}
	for id := range n {
		node.Cores = append(node.Cores, observe.Core{ID: id + 1, Capacity: 0.9})
	}
	node.Cores[0].Promised = 0.52
	node.Cores[0].Servers = []observe.Server{
		{Pod: "brake", Criticality: "High", Budget: 2500 * time.Microsecond, Period: 10 * time.Millisecond, Level: "hi"},
		{Pod: "logger", Criticality: "Low", Budget: 2500 * time.Microsecond, Period: 10 * time.Millisecond, Level: "low"},
	}
	f.State.Nodes = append(f.State.Nodes, node)
	return f
}

func TestRenderShowsCores(t *testing.T) {
	t.Parallel()
	text := ansi.Strip(view.Render(cores(frame(1), 3), 140, 50))
	for _, want := range []string{
		"core 1   █████▒▒▒▒▒········××  52%", "core 2   ··················××   0%", "core 3", "█ High ▓ Middle ▒ Low",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if small := ansi.Strip(view.Render(cores(frame(60), 3), 140, 40)); !strings.Contains(small, "core 1   █████") {
		t.Errorf("a small terminal hides the cores:\n%s", small)
	}
	large := ansi.Strip(view.Render(cores(frame(1), 40), 140, 50))
	if !strings.Contains(large, "core 1 ") || strings.Contains(large, "core 2 ") {
		t.Errorf("a large node shows more than the cores with work:\n%s", large)
	}
	if idle := ansi.Strip(view.Render(frame(2), 140, 50)); strings.Contains(idle, "High") {
		t.Errorf("a cluster without real-time work shows cores:\n%s", idle)
	}
}

func TestPrinterTellsWhatChangesOnCores(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := view.NewPrinter(&out)
	f := cores(frame(0), 2)
	p.Print(f)
	want := "01:15    [█████▒▒▒▒▒········××]  52%  core 1 of edge-0: brake (High, 2.5ms of 10ms, hi), logger (Low, 2.5ms of 10ms)\n"
	if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "core 2") {
		t.Errorf("got\n%s, want %s", out.String(), want)
	}
	out.Reset()
	p.Print(f)
	if out.Len() != 0 {
		t.Errorf("nothing is new, but it printed %q", out.String())
	}
	f.State.Nodes[0].Cores[0].Servers = nil
	p.Print(f)
	if !strings.Contains(out.String(), "core 1 of edge-0: empty") {
		t.Errorf("got %q", out.String())
	}
}
