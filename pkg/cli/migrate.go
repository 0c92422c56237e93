package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/move"
)

// moveSettings are the flags that migrate and drain have in common.
type moveSettings struct {
	explainSettings
	strategy        string
	every, farewell time.Duration
	timeout         time.Duration
	dryRun          bool
}

func (m *moveSettings) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG, or the one in your home")
	cmd.Flags().StringVar(&m.context, "context", "", "`context` of the kubeconfig; empty: the current one")
	cmd.Flags().StringVar(&m.strategy, "strategy", "", "Checkpoint, Surge, Restart or Evict; empty: what McKube, MigrationPolicy or owner suggest")
	cmd.Flags().DurationVar(&m.every, "interval", 500*time.Millisecond, "how often to look")
	cmd.Flags().DurationVar(&m.farewell, "abort-timeout", time.Minute, "how long to wait for the end of what was aborted")
}

// strategies by which a pod can be asked to be moved.
var strategies = []v1alpha1.MigrationStrategy{v1alpha1.StrategyCheckpoint, v1alpha1.StrategySurge, v1alpha1.StrategyRestart, v1alpha1.StrategyEvict}

func (m moveSettings) check() error {
	switch {
	case m.strategy != "" && !slices.Contains(strategies, v1alpha1.MigrationStrategy(m.strategy)):
		return usageError{fmt.Errorf("--strategy is %q; want Checkpoint, Surge, Restart or Evict", m.strategy)}
	case m.every < 10*time.Millisecond:
		return usageError{fmt.Errorf("--interval is %s; want at least 10ms", m.every)}
	case m.farewell < time.Second:
		return usageError{fmt.Errorf("--abort-timeout is %s; want at least 1s", m.farewell)}
	case m.timeout != 0 && (m.timeout < time.Second || m.timeout > 24*time.Hour):
		return usageError{fmt.Errorf("--timeout is %s; want from 1s to 24h, or 0s for none", m.timeout)}
	}
	return nil
}

// migrateSettings are the flags of migrate.
type migrateSettings struct {
	moveSettings
	to   string
	wait bool
}

func migrateCommand(s Streams) *cobra.Command {
	settings := migrateSettings{}
	cmd := &cobra.Command{
		Use:   "migrate POD",
		Short: "Move a pod to another node, with its state where that is possible",
		Long: `Creates a PodMigration in the cluster of your kubeconfig, which the controller carries out: room on the target is kept first, and
the pod goes only when the one in its place is known to be what it should be. With --wait the phases are shown until it is
over; an interrupt (Ctrl-C) aborts it, and up to the cut-over everything is undone. With --dry-run nothing is moved: it is shown
whether the pod could be, where to, and how, or why not.`,
		Args: oneArgument("the pod's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runMigrate(cmd.Context(), s, settings, args[0]) },
	}
	settings.addFlags(cmd)
	cmd.Flags().StringVarP(&settings.namespace, "namespace", "n", "", "`namespace` of the pod; empty: the context's")
	cmd.Flags().StringVar(&settings.to, "to", "", "the `node` that it goes to; empty: the one that takes it and then has most left")
	cmd.Flags().BoolVar(&settings.wait, "wait", false, "wait until it is over, and show how far it is")
	cmd.Flags().BoolVar(&settings.dryRun, "dry-run", false, "only show what would be done")
	cmd.Flags().DurationVar(&settings.timeout, "timeout", 0, "how long the whole migration may take with --wait before it is aborted; without, how long it may wait for its turn, and as long again from then on. 0s: an hour of waiting, and then by the size of its state")
	return cmd
}

func runMigrate(ctx context.Context, s Streams, settings migrateSettings, pod string) error {
	if err := settings.check(); err != nil {
		return err
	}
	c, namespace, err := settings.connect()
	if err != nil {
		return err
	}
	request := move.Request{
		Namespace: namespace, Pod: pod, To: settings.to, Strategy: v1alpha1.MigrationStrategy(settings.strategy), Trigger: v1alpha1.TriggerManual,
		Reason: "asked for by mainspring migrate", Timeout: settings.timeout, DryRun: settings.dryRun,
	}
	found, err := move.Pod(ctx, c, request)
	if err != nil {
		return err
	}
	request.UID = found.UID
	m, err := move.Create(ctx, c, request)
	if err != nil {
		return err
	}
	if !settings.wait && !settings.dryRun {
		fmt.Fprintf(s.Out, "PodMigration %s/%s is created; follow it with kubectl get podmigration -n %s %s -w\n", m.Namespace, m.Name, m.Namespace, m.Name)
		return nil
	}
	if settings.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, settings.timeout, timedOut(settings.timeout))
		defer cancel()
	}
	follower := move.Follower{Client: c, Clock: clock.RealClock{}, Out: s.Out, Every: settings.every, Farewell: settings.farewell}
	over, err := follower.Follow(ctx, client.ObjectKeyFromObject(m))
	if settings.dryRun {
		if err == nil {
			err = ended(over)
		}
		return errors.Join(err, client.IgnoreNotFound(c.Delete(context.WithoutCancel(ctx), m)))
	}
	if over != nil && over.Status.Phase.Over() {
		fmt.Fprintln(s.Out, move.Summary(over))
	}
	if err != nil {
		return err
	}
	return ended(over)
}

// ended is the failure that the end of a migration is, if it is one.
func ended(m *v1alpha1.PodMigration) error {
	switch m.Status.Phase {
	case v1alpha1.MigrationSucceeded, v1alpha1.MigrationDryRun:
		return nil
	case v1alpha1.MigrationSucceededWithoutState:
		return silentError{errors.New("the pod runs elsewhere, but without its state")}
	}
	return silentError{fmt.Errorf("the migration ended as %s", m.Status.Phase)}
}
