// Package programs builds the programs that tests run as processes.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/test/timing"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// Names of the programs, and of their directories below cmd.
const (
	Controller = "controller"
	Agents     = "hollow"
	Command    = "mainspring"
	Agent      = "agent"
	FastPath   = "fastpath"
	Standalone = "standalone"
)

// Shipped are all programs of this repository.
func Shipped() []string { return append(All(), Agent, FastPath, Standalone) }

// All are the programs of suites with simulated nodes.
func All() []string { return []string{Controller, Agents, Command} }

// NodeTools are the tools of the suite with a real node, beside those of every control plane.
func NodeTools() []toolchain.Tool {
	return []toolchain.Tool{
		toolchain.Kubelet, toolchain.Containerd, toolchain.Ctr, toolchain.ContainerdShim, toolchain.Runc, toolchain.CRIU,
		toolchain.PTP, toolchain.HostLocal, toolchain.MetricsServer,
	}
}

const (
	// Variable names the environment variable with the directory where a run of hack/test has built Shipped of this very source.
	Variable = "MAINSPRING_TEST_PROGRAMS"
	// RaceVariable names the environment variable that, set to 1, builds the programs with the race detector.
	RaceVariable = "MAINSPRING_RACE"
)

// Prebuilt is the directory where the run has built Shipped; empty: nowhere, or not as this suite wants them.
func Prebuilt() string {
	if os.Getenv(RaceVariable) == "1" {
		return ""
	}
	return os.Getenv(Variable)
}

// Path returns the path of a shipped program: the run's, or else one that it builds into dir.
func Path(ctx context.Context, dir, name string) (string, error) {
	if prebuilt := Prebuilt(); prebuilt != "" {
		return filepath.Join(prebuilt, name), nil
	}
	return filepath.Join(dir, name), Build(ctx, dir, name)
}

// Build builds programs into dir.
func Build(ctx context.Context, dir string, names ...string) error {
	args, env := []string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, toolchain.ProgramEnv()
	if os.Getenv(RaceVariable) == "1" {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	}
	for _, name := range names {
		args = append(args, "github.com/mainspring-rt/mainspring/cmd/"+name)
	}
	defer timing.Start(timing.Build, strings.Join(names, " "))()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(names, ", "), err, out)
	}
	return nil
}
