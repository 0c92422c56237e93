package stack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/text"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const controllerPackage = toolchain.MainModule + "/cmd/controller"

// toldLines is how many lines of a failed build are told.
const toldLines = 8

// buildStop is how long a build may take to end when it is interrupted.
const buildStop = 10 * time.Second

// controllerBinary is the given controller, or one built from the checkout into the cache.
func (o Options) controllerBinary(ctx context.Context) (string, error) {
	if o.Controller != "" {
		path, err := filepath.Abs(o.Controller)
		if err != nil {
			return "", fmt.Errorf("--controller %q: %w", o.Controller, err)
		}
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("--controller %q: %w; want an executable file", o.Controller, errors.Unwrap(err))
		}
		return path, nil
	}
	root, err := toolchain.FindRoot(".")
	if errors.Is(err, toolchain.ErrNoCheckout) {
		return "", fmt.Errorf("building the controller: %w: change to one, or name a built controller with --controller", err)
	}
	if err != nil {
		return "", fmt.Errorf("building the controller: %w", err)
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		return "", fmt.Errorf("building the controller: %w", err)
	}
	// One for each checkout: two of them must not run each other's.
	return build(ctx, o, root, filepath.Join(cache, fmt.Sprintf("controller-%x", sha256.Sum256([]byte(root)))[:len("controller-")+16]))
}

// build compiles into a file of its own and renames it, so that several can build at once.
func build(ctx context.Context, o Options, root, dir string) (string, error) {
	begun := o.Clock.Now()
	fmt.Fprintf(o.Progress, "building the controller\n")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("building the controller: %w", err)
	}
	temporary, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("building the controller: %w", err)
	}
	defer os.RemoveAll(temporary)
	built := filepath.Join(temporary, "controller")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", built, controllerPackage)
	cmd.Dir = root
	// An interrupted go command may leave temporary files: here they go with the directory.
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=auto", "GOTMPDIR="+temporary)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = buildStop
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("building the controller: %w", context.Cause(ctx))
	}
	if err != nil {
		return "", fmt.Errorf("building the controller: %w\n%s", err, text.LastLines(string(output), toldLines))
	}
	path := filepath.Join(dir, "controller")
	if err := os.Rename(built, path); err != nil {
		return "", fmt.Errorf("building the controller: %w", err)
	}
	fmt.Fprintf(o.Progress, "built the controller in %.1f s\n", o.Clock.Since(begun).Seconds())
	return path, nil
}
