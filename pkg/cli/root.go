// Package cli is the commands of mainspring. Each command is a file; what it does is in a package below.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mainspring-rt/mainspring/pkg/printable"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Streams are where commands read and write.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// interactive says that a person watches: input and output are a terminal.
func (s Streams) interactive() bool {
	in, okIn := s.In.(*os.File)
	to := s.Out
	if w, ok := to.(*printable.Writer); ok {
		to = w.Unwrap()
	}
	out, okOut := to.(*os.File)
	return okIn && okOut && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// usageError is an error in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// silentError is a failure whose reason the command has shown already.
type silentError struct{ error }

// Main runs the command that the arguments name and gives the exit code: 0, 1 for a failure, 2 for a wrong call.
func Main(ctx context.Context, args []string, s Streams) int {
	// What the cluster's objects say is written by many.
	s.Out, s.Err = printable.NewWriter(s.Out), printable.NewWriter(s.Err)
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if silent := (silentError{}); errors.As(err, &silent) {
		return exitFailure
	}
	if usage := (usageError{}); errors.As(err, &usage) {
		fmt.Fprintf(s.Err, "mainspring: %v; see mainspring help\n", err)
		return exitUsage
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(s.Err, "mainspring: %v\n", err)
	return exitFailure
}

func newRoot(s Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "mainspring",
		Short: "Node lifecycle for Kubernetes clusters with mixed-criticality real-time work",
		Long: `mainspring shows and tries Mainspring on your machine, on a real Kubernetes control plane with simulated machines.
Nothing outside this machine is touched, but by migrate and drain, which move pods in the cluster of your kubeconfig; explain and queue
read that cluster and change nothing there; doctor examines the machine it runs on and changes nothing there.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(demoCommand(s), replayCommand(s), localCommand(s), explainCommand(s), queueCommand(s), costCommand(s), powerCommand(s), migrateCommand(s), drainCommand(s), doctorCommand(s), agentCommand(), versionCommand(s))
	return root
}

// noArguments refuses arguments that are not flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return usageError{fmt.Errorf("%q is not a command of %s", args[0], cmd.CommandPath())}
	}
	return usageError{fmt.Errorf("%s takes no argument, but got %q", cmd.CommandPath(), args[0])}
}

// oneArgument asks for exactly one argument of that name.
func oneArgument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError{fmt.Errorf("%s wants one argument, %s, but got %d", cmd.CommandPath(), name, len(args))}
		}
		return nil
	}
}
