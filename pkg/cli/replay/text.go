package replay

import (
	"fmt"
	"io"
	"text/tabwriter"
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
	waits(row, "wait for a node, real", s.Wait.Bound)
	waits(row, "  pods with GPU", s.Wait.BoundGPU)
	waits(row, "  pods without GPU", s.Wait.BoundNoGPU)
	waits(row, "wait until running, real", s.Wait.Running)
	waits(row, "recorded wait, trace time", s.Wait.Recorded)
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

func waits(row func(name, format string, values ...any), name string, w Waits) {
	row(name, "p50 %.2f s, p90 %.2f s, p99 %.2f s, max %.2f s (%d pods)", w.P50, w.P90, w.P99, w.Max, w.Count)
}
