// Command standalone keeps the real-time budgets of processes on this machine, without a cluster: it is what
// mainspring agent --standalone becomes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/term"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
)

// garbage is the percentage of what is alive that garbage may be. It is half of what Go takes for usual: this program
// waits most of the time, and what it takes is not there for those that it governs.
const garbage = 50

func main() {
	// SIGPIPE too: when whoever reads the output leaves, there are still groups to remove.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	debug.SetGCPercent(garbage)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil && errors.Is(err, context.Canceled)
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case interrupted:
		err = errors.New("interrupted")
	}
	fmt.Fprintf(os.Stderr, "mainspring: %v\n", err)
	if errors.Is(err, standalone.ErrUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == standalone.LaunchCommand {
		return launch(args[1:])
	}
	c := standalone.Command{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Interactive: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))}
	flags := flag.NewFlagSet("standalone", flag.ContinueOnError)
	c.AddFlags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: argument %q: want none", standalone.ErrUsage, flags.Arg(0))
	}
	return c.Run(ctx)
}

// launch becomes the command of a server.
func launch(args []string) error {
	flags := flag.NewFlagSet(standalone.LaunchCommand, flag.ContinueOnError)
	priority := flags.Int("priority", 0, "SCHED_FIFO `priority`; 0: the policy stays")
	if err := parse(flags, args); err != nil {
		return err
	}
	return standalone.Launch(*priority, flags.Args())
}

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return fmt.Errorf("%w: %w", standalone.ErrUsage, err)
	}
	return err
}
