package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// agentFlags are the flags of the command agent.
type agentFlags struct {
	file, fastpath, stateDir, report string
	duration                         time.Duration
	plain                            bool
	samples                          int
}

func agentCommand(s Streams) *cobra.Command {
	flags := agentFlags{}
	cmd := &cobra.Command{
		Use:   "agent --standalone FILE",
		Short: "Keep the real-time budgets of processes on this machine, without a cluster",
		Long: `agent --standalone FILE runs the commands of a file, or takes over processes and control groups that it names, and gives each
its budget: admitted by the same test as in a cluster, watched in the kernel, raised on this machine within microseconds. It
needs root. When it ends, everything is as it was before. In a cluster the agent is a DaemonSet, not this command.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.file == "" {
				return usageError{errors.New("--standalone is not given; want a file of servers")}
			}
			return runStandalone(cmd, s, flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.file, "standalone", "", "`file` of servers; - is the standard input")
	f.StringVar(&flags.fastpath, "fastpath", "", "`binary` of the fast path; empty: fastpath beside this program")
	f.StringVar(&flags.stateDir, "state-dir", "/run/mainspring/standalone", "`directory` for state, logs of the commands, and the fast path's socket; absolute")
	f.DurationVar(&flags.duration, "duration", 0, "stop after this time; 0: when all commands have ended, or on Ctrl-C")
	f.StringVar(&flags.report, "report", "", "`file` for the last report, as JSON")
	f.BoolVar(&flags.plain, "plain", false, "print lines of what changed instead of a table that is redrawn")
	f.IntVar(&flags.samples, "samples", 0, "`number` of reactions to keep for each core, for measurements over the socket")
	cmd.AddCommand(launchCommand())
	return cmd
}

func runStandalone(cmd *cobra.Command, s Streams, flags agentFlags) error {
	file, err := readServers(s.In, flags.file)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if flags.fastpath == "" {
		flags.fastpath = filepath.Join(filepath.Dir(self), "fastpath")
	}
	if flags.fastpath, err = filepath.Abs(flags.fastpath); err != nil {
		return fmt.Errorf("finding the fast path: %w", err)
	}
	if _, err := os.Stat(flags.fastpath); err != nil {
		return fmt.Errorf("--fastpath: %w; build it with make build, or say where it is", err)
	}
	if !filepath.IsAbs(flags.stateDir) {
		return usageError{fmt.Errorf("--state-dir %q: want an absolute path", flags.stateDir)}
	}
	show := standalone.Lines(s.Out)
	if !flags.plain && s.interactive() {
		show = standalone.Live(s.Out, file)
	}
	last, err := standalone.Run(cmd.Context(), standalone.Options{
		File: file, Fastpath: flags.fastpath, Launcher: []string{self, "agent", launchName}, StateDir: flags.stateDir,
		Duration: flags.duration, Samples: flags.samples, Host: host.New("/"), Clock: clock.RealClock{}, Show: show,
		Say: func(line string) { fmt.Fprintln(s.Err, "mainspring: "+line) },
	})
	if len(last.Servers) > 0 {
		standalone.Table(s.Out, file, last, 0)
	}
	return errors.Join(err, writeReport(flags.report, last))
}

func readServers(in io.Reader, name string) (standalone.File, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return standalone.File{}, fmt.Errorf("--standalone: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, standalone.MaxFile+1))
	if err != nil {
		return standalone.File{}, fmt.Errorf("--standalone: reading %s: %w", name, err)
	}
	file, err := standalone.Parse(data)
	if err != nil {
		return file, fmt.Errorf("--standalone %s:\n%w", name, err)
	}
	return file, nil
}

func writeReport(path string, r table.Report) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

const launchName = "launch"

// launchCommand is what a server's command starts as: it waits until it is in its group.
func launchCommand() *cobra.Command {
	priority := 0
	cmd := &cobra.Command{
		Use:    launchName + " --priority=N -- COMMAND",
		Short:  "Become a command once it is in its control group",
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return standalone.Launch(priority, args) },
	}
	cmd.Flags().IntVar(&priority, "priority", 0, "SCHED_FIFO priority; 0: the policy stays")
	return cmd
}
