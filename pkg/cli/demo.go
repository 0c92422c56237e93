package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/demo"
	"github.com/mainspring-rt/mainspring/pkg/cli/local"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
)

// demoSettings are the flags of the demo.
type demoSettings struct {
	keep, plain                bool
	report, controller, hollow string
	limit                      time.Duration
}

func demoCommand(s Streams) *cobra.Command {
	settings := demoSettings{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Tell the story of a node's life on a local cluster, in six minutes",
		Long: `Starts a real control plane, simulated machines and the controller, and tells a story of ten chapters: scale-up,
consolidation, a drift roll-out under a budget, a spot interruption, a dying node, expiry, real-time pods that land on
cores, move each other and open a node, and pressure that climbs the ladder. Each chapter ends when its goal is seen in the API. Everything is gone afterwards, unless --keep is given.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, s, settings) },
	}
	cmd.Flags().BoolVar(&settings.keep, "keep", false, "leave the cluster up afterwards and print how to use it")
	cmd.Flags().BoolVar(&settings.plain, "plain", false, "print lines instead of the live view, even on a terminal")
	cmd.Flags().StringVar(&settings.report, "report", "out/demo", "`directory` for the HTML report")
	cmd.Flags().StringVar(&settings.controller, "controller", "", "controller `binary` to run; empty: built from the checkout")
	cmd.Flags().StringVar(&settings.hollow, "hollow", "", "`binary` of the simulated nodes' agents to run; empty: built from the checkout")
	cmd.Flags().DurationVar(&settings.limit, "limit", demo.Limit, "how long the story may take, at least that; the limits of its chapters grow with it, for a busy machine")
	return cmd
}

// A demo has no time for the usual patience with machines that fall silent.
const (
	// readingPause is how long a chapter's words stand before it begins when somebody watches.
	readingPause         = 4 * time.Second
	demoGracePeriod      = 8 * time.Second
	demoRepairToleration = "--simulated-repair-toleration=5s"
)

// demoArgs are those of the controller, with delays for which a story has the time.
func demoArgs() []string {
	return []string{
		demoRepairToleration, "--rt-pressure-window=5s", "--rt-pressure-delay=2s", "--rt-pressure-settle=3s",
		"--rt-pressure-calm=5s", "--rt-pressure-recovery-interval=2s",
	}
}

func runDemo(cmd *cobra.Command, s Streams, settings demoSettings) (err error) {
	ctx := cmd.Context()
	if settings.limit < demo.Limit {
		return fmt.Errorf("--limit is %s; want at least %s, which the story takes on an idle machine", settings.limit, demo.Limit)
	}
	if err := report.Writable(settings.report, report.IndexFile); err != nil {
		return err
	}
	c, err := startCluster(ctx, s, local.Settings{
		Controller: settings.controller, Hollow: settings.hollow, ControllerArgs: demoArgs(), NodeMonitorGracePeriod: demoGracePeriod,
	}, settings.keep)
	if err != nil {
		return err
	}
	interrupted := ctx
	defer func() {
		if err != nil && !errors.Is(err, demo.ErrChaptersFailed) {
			c.kept = nil // nothing to keep of what failed
		}
		err = errors.Join(err, c.finish(interrupted, s, kubectl(cmd, s.Err)))
	}()
	teller, err := newTeller(c, settings.limit)
	if err != nil {
		return err
	}
	if s.interactive() && !settings.plain {
		teller.Pause = readingPause
	}
	st := stage{streams: s, plain: settings.plain, cluster: c, recorder: teller.Recorder, frame: teller.Frame}
	if err := st.perform(ctx, teller.Perform); err != nil {
		return err
	}
	return finishDemo(s, settings, teller)
}

func newTeller(c *cluster, limit time.Duration) (*demo.Teller, error) {
	objects, err := client.New(c.config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	recorder, err := observe.New(c.config, observe.Options{})
	if err != nil {
		return nil, err
	}
	return demo.NewTeller(objects, recorder, clock.RealClock{}, demo.StoryWithin(limit), limit), nil
}

// finishDemo prints the summary and writes the report.
func finishDemo(s Streams, settings demoSettings, teller *demo.Teller) error {
	record := teller.Record()
	fmt.Fprintln(s.Out)
	record.Summary(s.Out)
	page, err := record.Page(environmentRows()...)
	if err != nil {
		return err
	}
	path, err := report.WriteFile(settings.report, page)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "report: %s\n", path)
	if failed := teller.Failed(); failed > 0 {
		return fmt.Errorf("%w: %d failed", demo.ErrChaptersFailed, failed)
	}
	return nil
}

// environmentRows are what a report tells of the software.
func environmentRows() [][]report.Cell {
	return [][]report.Cell{report.Cells("mainspring", versionWords()), report.Cells("cluster", "local control plane: etcd, kube-apiserver, "+
		"kube-controller-manager, kube-scheduler, kwok (simulated kubelets), the controller and the hollow node agents, each a process of its own")}
}
