package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/drain"
)

// drainSettings are the flags of drain.
type drainSettings struct {
	moveSettings
	force, emptyDir, evictRefused bool
}

func drainCommand(s Streams) *cobra.Command {
	settings := drainSettings{}
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Empty a node: migrate the pods that can be, evict the rest",
		Long: `Cordons the node, creates a PodMigration for each pod that a controller would make again, or whose McKube has it moved with its
state, evicts the rest through the Eviction API (so PodDisruptionBudgets hold), and shows what happens until the node is empty. Pods
of DaemonSets and static pods stay. Where something would be lost nothing is done at all unless you allow it. An interrupt
(Ctrl-C), or the end of --timeout, aborts the migrations that have not cut over: those pods run on where they are. The node
stays cordoned.`,
		Args: oneArgument("the node's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runDrain(cmd.Context(), s, settings, args[0]) },
	}
	settings.addFlags(cmd)
	cmd.Flags().BoolVar(&settings.dryRun, "dry-run", false, "only show what would be done")
	cmd.Flags().DurationVar(&settings.timeout, "timeout", 0, "how long it may take; 0s: without end")
	cmd.Flags().BoolVar(&settings.force, "force", false, "evict pods, too, that no controller owns, and that nothing makes again")
	cmd.Flags().BoolVar(&settings.emptyDir, "delete-emptydir-data", false, "go on although pods have volumes of kind emptyDir, whose contents are lost")
	cmd.Flags().BoolVar(&settings.evictRefused, "evict-refused", false, "evict pods of McKubes, too, whose migration came to nothing")
	return cmd
}

func runDrain(ctx context.Context, s Streams, settings drainSettings, node string) error {
	if err := settings.check(); err != nil {
		return err
	}
	c, _, err := settings.connect()
	if err != nil {
		return err
	}
	d := &drain.Drain{
		Client: c, Clock: clock.RealClock{}, Out: s.Out, Node: node, Strategy: v1alpha1.MigrationStrategy(settings.strategy), EvictRefused: settings.evictRefused,
		Allow: drain.Allow{Ownerless: settings.force, EmptyDir: settings.emptyDir}, Every: settings.every, Farewell: settings.farewell,
	}
	if settings.dryRun {
		return d.Plan(ctx)
	}
	if settings.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, settings.timeout, timedOut(settings.timeout))
		defer cancel()
	}
	return d.Run(ctx)
}

func timedOut(after time.Duration) error {
	return fmt.Errorf("it took longer than --timeout %s", after)
}
