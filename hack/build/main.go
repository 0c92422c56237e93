// Command build compiles the project's own programs into bin/, and tells what is being compiled.
//
//	go run ./hack/build [-ldflags FLAGS] [PROGRAM ...]
//
// Without names it builds all directories of cmd/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	out := flags.String("out", "bin", "the directory of the programs")
	ldflags := flags.String("ldflags", "", "flags of the linker")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := flags.Args()
	if len(names) == 0 {
		entries, err := os.ReadDir("cmd")
		if err != nil {
			return fmt.Errorf("listing the programs: %w", err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	// A directory that is there has go build write one file for each package into it.
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("making the directory of the programs: %w", err)
	}
	build := []string{"-ldflags", *ldflags, "-o", *out + string(filepath.Separator)}
	for _, name := range names {
		build = append(build, "./cmd/"+name)
	}
	return toolchain.BuildPrograms(ctx, os.Stderr, strings.Join(names, ", "), build...)
}
