// Command mainspring shows and tries Mainspring: a demo, replays of recorded workloads, a local cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/mainspring-rt/mainspring/pkg/cli"
)

// The first thread is the one that may have been told to end with the parent (PR_SET_PDEATHSIG), so it must be the one that
// goes on as another program.
func init() { runtime.LockOSThread() }

func main() {
	// SIGPIPE too: when whoever reads the output leaves, there is still a cluster to clean up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	code := cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
