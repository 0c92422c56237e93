// Command controller runs Mainspring's controllers against one cluster until it is told to stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/mainspring-rt/mainspring/pkg/operator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := operator.Run(ctx, os.Args[1:])
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	// One line, whatever the error is made of, so that the last line of the log tells the reason.
	fmt.Fprintf(os.Stderr, "mainspring-controller: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	if operator.IsUsageError(err) {
		os.Exit(2)
	}
	os.Exit(1)
}
