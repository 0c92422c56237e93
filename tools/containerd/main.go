// Command containerd is containerd and its client ctr in one binary, dispatched on the name it is
// called by.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	ctr "github.com/containerd/containerd/v2/cmd/ctr/app"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	containerd "github.com/containerd/containerd/v2/cmd/containerd/command"
)

func main() {
	app := containerd.App()
	if filepath.Base(os.Args[0]) == "ctr" {
		app = ctr.New()
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", app.Name, err)
		os.Exit(1)
	}
}
