package replay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/replay"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
)

func TestWaits(t *testing.T) {
	t.Parallel()
	if got := replay.WaitsOf(nil, 3); got != (replay.Waits{Of: 3, Without: 3}) {
		t.Errorf("got %+v", got)
	}
	var waits []time.Duration
	for i := 100; i > 0; i-- {
		waits = append(waits, time.Duration(i)*time.Second)
	}
	if got := replay.WaitsOf(waits, 103); got != (replay.Waits{Count: 100, Of: 103, Without: 3, P50: 50, P90: 90, P99: 99, Max: 100}) {
		t.Errorf("got %+v", got)
	}
}

// At least that share of the list does not exceed the percentile, and a smaller element would not do.
func TestPercentileIsNearestRank(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int64Range(0, 100), 1, 60).Draw(t, "list")
		percent := rapid.Float64Range(0, 100).Draw(t, "percent")
		sorted := make([]time.Duration, 0, len(list))
		for _, v := range list {
			at := 0
			for at < len(sorted) && sorted[at] < time.Duration(v) {
				at++
			}
			sorted = append(sorted[:at], append([]time.Duration{time.Duration(v)}, sorted[at:]...)...)
		}
		got := replay.Percentile(sorted, percent)
		atMost, below := 0, 0
		for _, v := range sorted {
			if v <= got {
				atMost++
			}
			if v < got {
				below++
			}
		}
		need := percent / 100 * float64(len(sorted))
		if float64(atMost) < need-1e-9 || (below > 0 && float64(below) >= need+1e-9) {
			t.Fatalf("%v of %v: %v (%d at most, %d below)", percent, sorted, got, atMost, below)
		}
	})
}

// record is a run of two jobs at speed 100, one of which waited 2 s and ran, and one that never did.
func record(t *testing.T) replay.Record {
	t.Helper()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	r := replay.Record{
		Speed: 100, Start: at(0), End: at(36),
		Jobs: []replay.Job{
			{Pod: trace.Pod{Name: "a", GPUs: 1, GPUMilli: 500, Created: time.Hour, Scheduled: time.Hour + time.Minute, WasScheduled: true}},
			{Pod: trace.Pod{Name: "b"}},
		},
		Outcomes: []replay.Outcome{{Asked: at(0), Bound: at(2), Running: at(3), Deleted: at(20), Attempts: 2}, {Asked: at(1), Attempts: 1}},
		Machines: []observe.Machine{{Claim: "m", Pool: "gpu", Type: "t4", CapacityType: "spot", Price: 2, Created: at(0), Gone: at(18)}},
	}
	for i := range 37 {
		s := observe.Sample{At: at(i), Nodes: map[string]int{"gpu": 1}, Price: 2, Watts: 500, CPU: observe.Amount{Requested: 1, Capacity: 4}}
		if i >= 18 {
			s.Nodes, s.Price, s.Watts, s.CPU = map[string]int{}, 0, 0, observe.Amount{}
		}
		r.Series = append(r.Series, s)
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestFigures(t *testing.T) {
	t.Parallel()
	s := replay.Figures(record(t))
	if s.Run.Started != 1 || s.Run.Created != 2 || s.Run.Finished != 1 || s.Run.Moved != 1 || len(s.Run.NeverStarted) != 1 || s.Run.NeverStarted[0].Pod != "b" {
		t.Errorf("run %+v", s.Run)
	}
	if s.Run.Seconds != 36 || !near(s.Run.TraceDays, 1.0/24) {
		t.Errorf("run %+v", s.Run)
	}
	if s.Wait.Bound.P50 != 2 || s.Wait.Running.P99 != 3 || s.Wait.BoundGPU.Count != 1 || s.Wait.Bound.Without != 1 || s.Wait.BoundNoGPU != (replay.Waits{Of: 1, Without: 1}) || s.Wait.Recorded.P50 != 60 || s.Wait.NeverPlacedInTrace != 1 {
		t.Errorf("waits %+v", s.Wait)
	}
	// Half an hour of trace time at $2/h and 500 W.
	if !near(s.Spent.Dollars, 1) || !near(s.Spent.KWh, 0.25) || !near(s.Spent.NodeHours, 0.5) || !near(s.Spent.DollarsReal, 0.01) || !near(s.Spent.CPU, 0.25) {
		t.Errorf("spent %+v", s.Spent)
	}
	if len(s.Machines) != 1 || !near(s.Machines[0].Dollars, 1) || s.Machines[0].Opened != 1 {
		t.Errorf("machines %+v", s.Machines)
	}
}

// Pods that never started have no wait: each report says how many there are, and a set of none has no figures.
func TestPodsWithoutAWaitAreToldBesideThePercentiles(t *testing.T) {
	t.Parallel()
	r := record(t)
	s := replay.Figures(r)
	var words bytes.Buffer
	s.Print(&words)
	for _, want := range []string{
		"p50 2.00 s, p90 2.00 s, p99 2.00 s, max 2.00 s (of 2 pods; 1 never got a node and have no wait)",
		"none (of 1 pod; 1 never got a node and have no wait)", "(of 2 pods; 1 never started and have no wait)",
	} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("%q is missing in\n%s", want, words.String())
		}
	}
	data, err := json.Marshal(s.Wait)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"untilBound":{"count":1,"ofPods":2,"podsWithoutWait":1,"p50Seconds":2,`,
		`"untilBoundWithoutGPU":{"count":0,"ofPods":1,"podsWithoutWait":1,"p50Seconds":null,"p90Seconds":null,"p99Seconds":null,"maxSeconds":null}`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is missing in %s", want, data)
		}
	}
	html := pageOf(t, s, r)
	for _, want := range []string{"of 2 pods; 1 never got a node and have no wait", "never, without a wait", ">none<"} {
		if !strings.Contains(html, want) {
			t.Errorf("%q is missing in the page", want)
		}
	}
}

func TestFailureMeansThatNothingStartedThatCould(t *testing.T) {
	t.Parallel()
	started := replay.Figures(record(t))
	none := started
	none.Run.Started, none.Run.NeverStarted = 0, []replay.Misfit{{Pod: "a", Why: "no machine came"}, {Pod: "b", Why: "nor here"}}
	onlyMisfits := replay.Figures(replay.Record{Speed: 1})
	onlyMisfits.Fit.Misfits = []replay.Misfit{{Pod: "c", Why: "too big"}}
	if err := errors.Join(started.Failure(), onlyMisfits.Failure()); err != nil {
		t.Errorf("got %v", err)
	}
	want := "no pod was started, though allowed machines hold 2 pods; a: no machine came"
	if err := none.Failure(); !errors.Is(err, replay.ErrNoneStarted) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func pageOf(t *testing.T, s replay.Summary, r replay.Record) string {
	t.Helper()
	page, err := replay.Page(s, r, start, nil)
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := report.Write(&html, page); err != nil {
		t.Fatal(err)
	}
	return html.String()
}

func TestReportsAreComplete(t *testing.T) {
	t.Parallel()
	r := record(t)
	s := replay.Figures(r)
	s.Input = replay.Input{Pods: "pods.csv", Nodes: "nodes.csv", Speed: 100, Selected: 2, TraceNodes: 8}
	s.Fit.Misfits = []replay.Misfit{{Pod: "c", Why: "CPU: wants <all>"}}
	dir := t.TempDir()
	path, err := replay.WriteJSON(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back replay.Summary
	if err := json.Unmarshal(data, &back); err != nil || back.Spent != s.Spent || len(back.Series) != 37 {
		t.Errorf("replay.json does not give the figures back: %v %+v", err, back.Spent)
	}
	page, err := replay.Page(s, r, start, nil)
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := report.Write(&html, page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Workload replay", "CPU: wants &lt;all&gt;", "recorded in the trace (trace time)", "Nodes by pool"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("%q is missing in the page", want)
		}
	}
	if strings.Contains(html.String(), "http") {
		t.Errorf("the page refers to something outside")
	}
	for name, how := range s.How {
		if how == "" {
			t.Errorf("%s does not say how it was computed", name)
		}
	}
}
