// Command tools builds or locates the programs that the project runs beside its own, and prints
// what that took.
//
//	go run ./hack/tools                    # all of them
//	go run ./hack/tools kwok helm          # some
//	go run ./hack/tools --list             # the names
//	go run ./hack/tools --path kubectl     # only the path, for scripts
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("tools", flag.ContinueOnError)
	list := flags.Bool("list", false, "print the names of the tools and exit")
	paths := flags.Bool("path", false, "print only the paths, one a line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tools, err := toolchain.Default(os.Stderr)
	if err != nil {
		return err
	}
	if *list {
		for _, tool := range tools.Tools() {
			fmt.Println(tool)
		}
		return nil
	}
	wanted := make([]toolchain.Tool, 0, flags.NArg())
	for _, name := range flags.Args() {
		wanted = append(wanted, toolchain.Tool(name))
	}
	start := time.Now()
	installed, err := tools.Ensure(ctx, wanted...)
	if err != nil {
		return err
	}
	if *paths {
		for _, i := range installed {
			fmt.Println(i.Path)
		}
		return nil
	}
	return printTable(os.Stdout, installed, time.Since(start))
}

func printTable(out io.Writer, installed []toolchain.Installed, took time.Duration) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TOOL\tVERSION\tORIGIN\tBUILD\tPATH")
	for _, i := range installed {
		build := "-"
		if i.Took > 0 {
			build = i.Took.Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", i.Tool, i.Version, i.Origin, build, i.Path)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "ready in %s\n", took.Round(10*time.Millisecond))
	return err
}
