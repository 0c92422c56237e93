// Command agent is the node agent's half that talks to the API server. The other half, cmd/fastpath, governs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/mainspring-rt/mainspring/pkg/agent"
)

// Version of the program; set when it is built.
var Version = "dev"

// garbage is the percentage of what is alive that garbage may be: a quarter of what Go takes for usual. With a hundred
// containers that makes a collection in each second or two, of some milliseconds of a core.
const garbage = 25

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	// One line, whatever the error is made of, so that the last line of the log tells the reason.
	fmt.Fprintf(os.Stderr, "mainspring-agent: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, agent.ErrUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	options, err := agent.ParseOptions(args, os.Stdout)
	if err != nil {
		return err
	}
	log := zap.New(zap.Level(uberzap.NewAtomicLevelAt(zapcore.Level(-options.Verbosity))))
	crlog.SetLogger(log)
	klog.SetLogger(log)
	if options.MemoryLimit > 0 {
		debug.SetMemoryLimit(options.MemoryLimit << 20)
		debug.SetGCPercent(garbage)
	}
	config, err := agent.LoadConfig(options.Kubeconfig, Version)
	if err != nil {
		return err
	}
	services, err := agent.Services(agent.Environment{
		Options: options, Config: config, Clock: clock.RealClock{}, Log: log, Version: Version,
	})
	if err != nil {
		return err
	}
	log.Info("the agent starts", "node", options.NodeName, "version", Version)
	return agent.RunServices(ctx, services)
}
