package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/explain"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Forms in which an explanation is written.
const (
	outputText = "text"
	outputJSON = "json"
)

// explainSettings are the flags of explain.
type explainSettings struct {
	kubeconfig, context, namespace, output string
	granularity                            time.Duration
}

func explainCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why a real-time pod waits, or what presses a node",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(explainPod(s), explainNode(s))
	return cmd
}

func explainPod(s Streams) *cobra.Command {
	settings := explainSettings{}
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "List the gates on a pod's way to its core, with the numbers that decided",
		Long: `Reads the cluster of your kubeconfig, changes nothing, and lists the gates on the pod's way to its core up to the
first that it has not passed: its McKube, the settings, the claim, what every node and class of cores answers, the agent,
the core it runs on, what the agent read back.`,
		Args: oneArgument("the pod's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runExplainPod(cmd, s, settings, args[0]) },
	}
	settings.addFlags(cmd)
	cmd.Flags().StringVarP(&settings.namespace, "namespace", "n", "", "`namespace` of the pod; empty: the context's")
	return cmd
}

func explainNode(s Streams) *cobra.Command {
	settings := explainSettings{}
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Say whether a node is under real-time pressure, and what is done about it",
		Long: `Reads the cluster of your kubeconfig, changes nothing, and says whether real-time work of the node suffers, from what
and since when, what runs on each core, and which actions were chosen about it, with why nothing cheaper was.`,
		Args: oneArgument("the node's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return runExplainNode(cmd, s, settings, args[0]) },
	}
	settings.addFlags(cmd)
	return cmd
}

// addFlags adds those that pods and nodes have in common.
func (e *explainSettings) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG, or the one in your home")
	cmd.Flags().StringVar(&e.context, "context", "", "`context` of the kubeconfig; empty: the current one")
	cmd.Flags().StringVarP(&e.output, "output", "o", outputText, "text or json")
	cmd.Flags().DurationVar(&e.granularity, "rt-budget-granularity", state.DefaultGranularity*time.Microsecond, "the controller's flag of that name")
}

func (e explainSettings) check() error {
	if e.output != outputText && e.output != outputJSON {
		return usageError{fmt.Errorf("--output is %q; want %s or %s", e.output, outputText, outputJSON)}
	}
	if e.granularity < time.Microsecond || e.granularity%time.Microsecond != 0 {
		return usageError{fmt.Errorf("--rt-budget-granularity is %s; want whole microseconds, at least 1us", e.granularity)}
	}
	return nil
}

func runExplainPod(cmd *cobra.Command, s Streams, settings explainSettings, name string) error {
	reader, namespace, snapshot, err := settings.read(cmd)
	if err != nil {
		return err
	}
	explanation, err := explain.Pod(snapshot, namespace, name)
	if err != nil {
		return err
	}
	if err := explanation.AddEvents(cmd.Context(), reader); err != nil {
		return err
	}
	if settings.output == outputJSON {
		return explanation.JSON(s.Out)
	}
	return explanation.Text(s.Out)
}

func runExplainNode(cmd *cobra.Command, s Streams, settings explainSettings, name string) error {
	reader, _, snapshot, err := settings.read(cmd)
	if err != nil {
		return err
	}
	explanation, err := explain.Node(snapshot, name)
	if err != nil {
		return err
	}
	for _, add := range []func(context.Context, client.Reader) error{explanation.AddActions, explanation.AddEvents} {
		if err := add(cmd.Context(), reader); err != nil {
			return err
		}
	}
	if settings.output == outputJSON {
		return explanation.JSON(s.Out)
	}
	return explanation.Text(s.Out)
}

// read makes the state from the cluster.
func (e explainSettings) read(cmd *cobra.Command) (reader client.Client, namespace string, snapshot *state.Snapshot, err error) {
	if err := e.check(); err != nil {
		return nil, "", nil, err
	}
	if reader, namespace, err = e.connect(); err != nil {
		return nil, "", nil, err
	}
	snapshot, err = explain.Read(cmd.Context(), reader, state.Options{Granularity: e.granularity.Microseconds()})
	return reader, namespace, snapshot, err
}

// connect reads the kubeconfig as kubectl does.
func (e explainSettings) connect() (reader client.Client, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = e.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: e.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reading kubeconfig: %w", err)
	}
	if namespace = e.namespace; namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("reading kubeconfig: %w", err)
		}
	}
	scheme, err := explain.Scheme()
	if err != nil {
		return nil, "", err
	}
	config.QPS = -1 // the API server divides its time itself; a limit here would answer for it when a deadline is near
	if reader, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, "", fmt.Errorf("making client: %w", err)
	}
	return reader, namespace, nil
}
