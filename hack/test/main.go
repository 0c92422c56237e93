// Command test runs the project's tests and writes what they took to out/test-times.md, also when they fail.
//
//	go run ./hack/test                        # unit tests and suites, as `make test`
//	go run ./hack/test unit                   # the unit and control-plane tests of the packages
//	go run ./hack/test e2e --suite ladder     # one end-to-end suite
//	go run ./hack/test e2e --suite migration --focus surge
//	go run ./hack/test --exhaustive           # every kill point and every random history
//
// It builds the tools, runs gotestsum and Ginkgo, repeats what test/second-tries.yaml names, and fails with them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == execCommand {
		code, err := execProgram(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "test:", err)
			os.Exit(1)
		}
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
}
