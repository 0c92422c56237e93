package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/local"
	"github.com/mainspring-rt/mainspring/pkg/cli/replay"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
)

// replaySettings are the flags of the replay.
type replaySettings struct {
	request                    replay.Request
	from                       float64
	settle                     time.Duration
	report, controller, hollow string
	plain                      bool
}

// maxFrom is about the longest time.Duration, in seconds.
const maxFrom = 9e9

func replayCommand(s Streams) *cobra.Command {
	settings := replaySettings{}
	cmd := &cobra.Command{
		Use:   "replay --pods CSV [--nodes CSV] [flags]",
		Short: "Play a recorded workload back on simulated machines and report waits, cost and energy",
		Long: `Plays the pods of a recorded workload back as real Pods on a local cluster with simulated machines, faster than they were
recorded, and reports how long they waited, which machines were opened, and what they cost in dollars and kWh.

The default columns are those of the openb trace; --map names others. See docs/replay.md.`,
		Example: `  mainspring replay --pods pods.csv --nodes nodes.csv --limit 1000 --speed 300 --report out/replay
  mainspring replay --pods jobs.csv --map name=job --map cpu_milli=cpu:cores --map creation_time=submitted:ms`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settings.check(); err != nil {
				return usageError{err}
			}
			return runReplay(cmd, s, settings)
		},
	}
	settings.addFlags(cmd)
	return cmd
}

func (r *replaySettings) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.request.PodFile, "pods", "", "`CSV` file of the recorded pods")
	f.StringVar(&r.request.NodeFile, "nodes", "", "`CSV` file of the recorded machines, to tell which pods fit them")
	f.StringVar(&r.request.PoolFile, "nodepools", "", "YAML `file` of NodePools and node classes; empty: all general and GPU machines, on demand")
	f.StringArrayVar(&r.request.Maps, "map", nil, "`field=column[:unit]`, where a field has another column; node.field=column for --nodes; may be repeated")
	f.Float64Var(&r.from, "from", 0, "leave out pods created before this `second` of the trace")
	f.IntVar(&r.request.Select.Limit, "limit", 0, "play at most `n` pods; 0: all")
	f.Float64Var(&r.request.Select.Speed, "speed", 100, "play so many `times` faster than recorded")
	f.DurationVar(&r.settle, "settle", 2*time.Minute, "how long after the last pod is created pods may still wait before the run ends")
	f.StringVar(&r.report, "report", "out/replay", "`directory` for index.html and replay.json")
	f.StringVar(&r.controller, "controller", "", "controller `binary` to run; empty: built from the checkout")
	f.StringVar(&r.hollow, "hollow", "", "`binary` of the simulated nodes' agents to run; empty: built from the checkout")
	f.BoolVar(&r.plain, "plain", false, "print lines instead of the live view, even on a terminal")
}

// check refuses what no replay can do, and completes the request.
func (r *replaySettings) check() error {
	switch {
	case r.request.PodFile == "":
		return errors.New("--pods is missing; want the CSV file of the recorded pods")
	case !(r.from >= 0) || r.from > maxFrom:
		return fmt.Errorf("--from is %g; want a second of the trace, from 0 to %.0f", r.from, maxFrom)
	case r.request.Select.Limit < 0:
		return fmt.Errorf("--limit is %d; want a number of pods, or 0 for all", r.request.Select.Limit)
	case !(r.request.Select.Speed > 0) || r.request.Select.Speed > 1e6:
		return fmt.Errorf("--speed is %g; want more than 0 and at most 1000000", r.request.Select.Speed)
	case r.settle < 0:
		return fmt.Errorf("--settle is %s; want 0s or more", r.settle)
	}
	r.request.Select.From = time.Duration(r.from * float64(time.Second))
	return nil
}

func runReplay(cmd *cobra.Command, s Streams, settings replaySettings) (err error) {
	ctx := cmd.Context()
	prepared, err := replay.Prepare(settings.request)
	if err != nil {
		return err
	}
	if err := report.Writable(settings.report, report.IndexFile, replay.FiguresFile); err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%d pods selected, %d fit no allowed machine\n", prepared.Input.Selected, len(prepared.Fit.Misfits))
	c, err := startCluster(ctx, s, local.Settings{Controller: settings.controller, Hollow: settings.hollow}, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.finish(ctx, s, "")) }()
	objects, err := client.New(c.config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	session, err := replay.NewSession(c.config, objects, clock.RealClock{}, prepared, settings.settle)
	if err != nil {
		return err
	}
	st := stage{streams: s, plain: settings.plain, cluster: c, recorder: session.Recorder, frame: session.Frame}
	if err := st.perform(ctx, session.Perform); err != nil {
		return err
	}
	return finishReplay(s, settings.report, session)
}

// finishReplay prints the figures and writes the reports.
func finishReplay(s Streams, dir string, session *replay.Session) error {
	summary, record := session.Finish()
	summary.Environment = map[string]string{}
	for _, row := range report.Environment(environmentRows()...).Rows {
		summary.Environment[row[0].Text] = row[1].Text
	}
	fmt.Fprintln(s.Out)
	summary.Print(s.Out)
	page, err := replay.Page(summary, record, record.End, environmentRows())
	if err != nil {
		return err
	}
	data, err := replay.WriteJSON(dir, summary)
	if err != nil {
		return err
	}
	html, err := report.WriteFile(dir, page)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "report: %s\nfigures: %s\n", html, data)
	return summary.Failure()
}
