package replay

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

// Print prints the figures as a table.
func (s Summary) Print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, values...))
	}
	row("pods", "%d selected over %.2f days of the trace, %d with GPU, of these %d with a share of one", s.Input.Selected, s.Input.SpanDays, s.Input.WantingGPU, s.Input.Fractional)
	row("fit an allowed machine", "%.1f %% (%d pods do not)", 100*s.Fit.OnCatalogue, len(s.Fit.Misfits))
	if s.Input.TraceNodes > 0 {
		row("fit the trace's machines", "%.1f %% (%d machines of %d shapes)", 100*s.Fit.OnTraceMachines, s.Input.TraceNodes, s.Input.TraceShapes)
	}
	row("run", "%.0f real seconds at %g times = %.2f days; %d pods created, %d started, %d done, %d still running, %d moved, %d never started",
		s.Run.Seconds, s.Input.Speed, s.Run.TraceDays, s.Run.Created, s.Run.Started, s.Run.Finished, s.Run.StillRunning, s.Run.Moved, len(s.Run.NeverStarted))
	row("wait for a node, real", "%s", s.Wait.Bound.words(neverBound))
	row("  pods with GPU", "%s", s.Wait.BoundGPU.words(neverBound))
	row("  pods without GPU", "%s", s.Wait.BoundNoGPU.words(neverBound))
	row("wait until running, real", "%s", s.Wait.Running.words(neverRan))
	row("recorded wait, trace time", "%s", s.Wait.Recorded.words(neverRecorded))
	row("spent, trace time", "$%.2f (of it $%.2f for nodes without a pod), %.3g kWh, %.3g node hours (real time: $%.4f, %.4f kWh)", s.Spent.Dollars, s.Spent.DollarsIdle, s.Spent.KWh, s.Spent.NodeHours, s.Spent.DollarsReal, s.Spent.KWhReal)
	row("nodes", "at most %d at once, at most $%.2f/h, at most %d pods running", s.Spent.PeakNodes, s.Spent.PeakPrice, s.Spent.PeakPods)
	row("requested of allocatable", "%.1f %% of CPU, %.1f %% of GPU", 100*s.Spent.CPU, 100*s.Spent.GPU)
	t.Flush()
	for i, m := range s.Fit.Misfits {
		if i == toldMisfits {
			fmt.Fprintf(out, "  ... %d more in replay.json\n", len(s.Fit.Misfits)-toldMisfits)
			break
		}
		fmt.Fprintf(out, "  %s fits no allowed machine: %s\n", m.Pod, m.Why)
	}
}

// toldMisfits is how many misfits are printed.
const toldMisfits = 10

// Why pods have no wait, by the kind of the wait.
const (
	neverBound    = "never got a node"
	neverRan      = "never started"
	neverRecorded = "never placed in the trace"
)

// words are the figures of waits; never says what befell the pods that have none.
func (w Waits) words(never string) string {
	if w.Count == 0 {
		return fmt.Sprintf("none (%s)", w.share(never))
	}
	return fmt.Sprintf("p50 %.2f s, p90 %.2f s, p99 %.2f s, max %.2f s (%s)", w.P50, w.P90, w.P99, w.Max, w.share(never))
}

// share says of how many pods the figures are, and that those without a wait are not in them.
func (w Waits) share(never string) string {
	if w.Without == 0 {
		return "of " + text.Plural(w.Of, "pod")
	}
	return fmt.Sprintf("of %s; %d %s and have no wait", text.Plural(w.Of, "pod"), w.Without, never)
}
