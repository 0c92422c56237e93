package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
)

func agentCommand() *cobra.Command {
	run := standalone.Command{}
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	run.AddFlags(flags)
	cmd := &cobra.Command{
		Use:   "agent --standalone FILE",
		Short: "Keep the real-time budgets of processes on this machine, without a cluster",
		Long: `agent --standalone FILE runs the commands of a file, or takes over processes and control groups that it names, and gives each
its budget: admitted by the same test as in a cluster, watched in the kernel, raised on this machine within microseconds. It
needs root, and the programs standalone and fastpath beside this one. When it ends, everything is as it was before. In a
cluster the agent is a DaemonSet, not this command.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := run.Validate()
			if errors.Is(err, standalone.ErrUsage) {
				return usageError{err}
			}
			return errors.Join(err, become(standalone.Program, given(cmd.Flags())))
		},
	}
	cmd.Flags().AddGoFlagSet(flags)
	return cmd
}

// given are the flags that were given, as arguments.
func given(flags *pflag.FlagSet) (args []string) {
	flags.Visit(func(f *pflag.Flag) { args = append(args, "--"+f.Name+"="+f.Value.String()) })
	return args
}

// become has the process go on as another program, which is beside this one: this one's memory is let go of. It
// returns only with an error.
func become(program string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), program)
	return fmt.Errorf("starting %s, which belongs beside %s: %w; build both with make build", path, filepath.Base(self), unix.Exec(path, append([]string{path}, args...), os.Environ()))
}
