package cli

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/queue"
)

// outputWide is a form of tables with every column.
const outputWide = "wide"

// queueSettings are the flags of queue.
type queueSettings struct {
	explainSettings
	watch    bool
	interval time.Duration
	ageStep  time.Duration
}

func queueCommand(s Streams) *cobra.Command {
	settings := queueSettings{}
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Show the actions on pods and nodes that wait, run, or were over lately",
		Long: `Reads the orchestration queue of the cluster of your kubeconfig and changes nothing: the actions that wait, in the order in
which they are judged, with what each waits for; those that run or are being undone; those that were over lately. To withdraw
one, delete it: kubectl delete rtaction NAME.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runQueue(cmd.Context(), s, settings) },
	}
	cmd.Flags().StringVar(&settings.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG, or the one in your home")
	cmd.Flags().StringVar(&settings.context, "context", "", "`context` of the kubeconfig; empty: the current one")
	cmd.Flags().StringVarP(&settings.output, "output", "o", outputText, "text, wide or json")
	cmd.Flags().BoolVarP(&settings.watch, "watch", "w", false, "show it again whenever it has changed, until interrupted")
	cmd.Flags().DurationVar(&settings.interval, "interval", time.Second, "how often to look, with --watch")
	cmd.Flags().DurationVar(&settings.ageStep, "queue-age-step", 10*time.Minute, "the controller's flag of that name")
	return cmd
}

func (q queueSettings) check() error {
	switch {
	case q.output != outputText && q.output != outputWide && q.output != outputJSON:
		return usageError{fmt.Errorf("--output is %q; want %s, %s or %s", q.output, outputText, outputWide, outputJSON)}
	case q.interval < 100*time.Millisecond:
		return usageError{fmt.Errorf("--interval is %s; want at least 100ms", q.interval)}
	case q.ageStep <= 0:
		return usageError{fmt.Errorf("--queue-age-step is %s; want more than 0s", q.ageStep)}
	}
	return nil
}

func runQueue(ctx context.Context, s Streams, settings queueSettings) error {
	if err := settings.check(); err != nil {
		return err
	}
	reader, _, err := settings.connect()
	if err != nil {
		return err
	}
	if !settings.watch {
		_, err := showQueue(ctx, s, settings, reader, nil)
		return err
	}
	clk := clock.RealClock{}
	var shown []byte
	for {
		shown, err = showQueue(ctx, s, settings, reader, shown)
		if err != nil && ctx.Err() == nil { // interrupted is how it ends
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-clk.After(settings.interval):
		}
	}
}

// showQueue writes the queue unless it is as it was shown before, ages aside.
func showQueue(ctx context.Context, s Streams, settings queueSettings, reader client.Reader, before []byte) (shown []byte, err error) {
	objects, err := queue.Read(ctx, reader)
	if err != nil {
		return nil, err
	}
	now := clock.RealClock{}.Now()
	view := queue.Build(objects, settings.ageStep, now)
	var state bytes.Buffer
	if err := view.JSON(&state); err != nil {
		return nil, err
	}
	if bytes.Equal(state.Bytes(), before) {
		return before, nil
	}
	if settings.watch && settings.output != outputJSON {
		fmt.Fprintf(s.Out, "%s\n", now.Format(time.RFC3339))
	}
	if settings.output == outputJSON {
		_, err = s.Out.Write(state.Bytes())
		return state.Bytes(), err
	}
	return state.Bytes(), view.Text(s.Out, settings.output == outputWide, now)
}
