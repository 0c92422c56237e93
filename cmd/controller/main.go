// Command controller runs Mainspring's controllers against one cluster until it is told to stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mainspring-rt/mainspring/pkg/operator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := operator.Run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case operator.IsUsageError(err):
		fmt.Fprintf(os.Stderr, "mainspring-controller: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "mainspring-controller: %v\n", err)
		os.Exit(1)
	}
}
