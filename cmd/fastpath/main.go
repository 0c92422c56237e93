// Command fastpath keeps the budgets of a node's real-time containers until it is told to stop. It speaks
// to nobody but the node's agent, over a Unix socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/node"
)

// Version is set when a release is built.
var Version = "dev"

// The first thread is the one that was told to end with the parent (PR_SET_PDEATHSIG), so it must be the one that
// starts the program again.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	// One line, whatever the error is made of, so that the last line of the log tells the reason.
	fmt.Fprintf(os.Stderr, "mainspring-fastpath: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(1)
}

func parse(args []string) (s node.Settings, probe bool, err error) {
	s = node.Settings{Version: Version, Clock: clock.RealClock{}, Now: ebpf.Monotonic, Wall: func() int64 { return time.Now().UnixNano() }, Abandon: abandon}
	flags := flag.NewFlagSet("fastpath", flag.ContinueOnError)
	flags.StringVar(&s.Socket, "socket", "/run/mainspring/fastpath.sock", "Unix socket on which the agent is answered")
	flags.StringVar(&s.StateDir, "state-dir", "/var/lib/mainspring", "Directory for what must outlive the process: the last table, and what was there before each change")
	flags.StringVar(&s.Root, "root", "/", "Where the machine's file systems are: another path than / where they are mounted into a container")
	flags.StringVar(&s.Backend, "backend", "", "How budgets are enforced: hcbs, rtgroup, fifo, deadline or cfs. Empty: the best that works")
	flags.DurationVar(&s.Lead, "lead", 200*time.Microsecond, "How long before its end a budget is raised; of a small budget a quarter at most")
	flags.DurationVar(&s.Granularity, "charge-granularity", 0, "What is charged to every budget for the late end of it; 0: what the self-test measures. Less than that trusts the containers to keep to their highest budgets")
	flags.StringVar(&s.Cores, "cores", "", `Cores that take real-time work, as "1-3,6". Empty: all but the reserved`)
	flags.StringVar(&s.Reserved, "reserved-cores", "", `Cores that are kept for the host, as "0". Empty: the lowest`)
	flags.IntVar(&s.Priority, "priority", 98, "SCHED_FIFO priority of the process: above the containers'")
	flags.BoolVar(&s.RunQueue, "run-queue-latency", false, "Measure how long threads wait for their core; it costs something at every wake-up")
	flags.IntVar(&s.Samples, "samples", 0, "How many reactions are kept for each core, for measurements")
	flags.BoolVar(&probe, "probe", false, "Ask the fast path at --socket whether it does its work, and end: for probes")
	if err := flags.Parse(args); err != nil {
		return s, probe, err
	}
	if flags.NArg() > 0 {
		return s, probe, fmt.Errorf("argument %q: want none", flags.Arg(0))
	}
	return s, probe, s.Validate()
}

// abandon has the Go runtime end the process at once and print what every goroutine waits for.
func abandon() { _ = syscall.Kill(os.Getpid(), syscall.SIGQUIT) }

// probeTimeout is how long an answer may take.
const probeTimeout = 5 * time.Second

func run(ctx context.Context, args []string) error {
	settings, probe, err := parse(args)
	if err != nil {
		return err
	}
	if probe {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return client.New(settings.Socket).Alive(ctx)
	}
	tick := time.NewTicker(fastpath.SweepEvery)
	defer tick.Stop()
	settings.Sweep = tick.C
	return node.Run(ctx, settings)
}
