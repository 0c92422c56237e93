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

// program is one of ours that a stack runs: what it is called in messages, the name of its binary and of its package
// below cmd, and the flag that gives a built one.
type program struct{ title, name, flag string }

var (
	controllerProgram = program{title: "the controller", name: "controller", flag: "--controller"}
	hollowProgram     = program{title: "the hollow agents", name: "hollow", flag: "--hollow"}
)

// toldLines is how many lines of a failed build are told.
const toldLines = 8

// buildStop is how long a build may take to end when it is interrupted.
const buildStop = 10 * time.Second

// binary is the given one, or one built from the checkout into the cache.
func (o Options) binary(ctx context.Context, p program, given string) (string, error) {
	if given != "" {
		path, err := filepath.Abs(given)
		if err != nil {
			return "", fmt.Errorf("%s %q: %w", p.flag, given, err)
		}
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("%s %q: %w; want an executable file", p.flag, given, errors.Unwrap(err))
		}
		return path, nil
	}
	path, err := o.built(ctx, p)
	if errors.Is(err, toolchain.ErrNoCheckout) {
		return "", fmt.Errorf("building %s: %w: change to one, or name a built one with %s", p.title, err, p.flag)
	}
	if err != nil {
		return "", fmt.Errorf("building %s: %w", p.title, err)
	}
	return path, nil
}

func (o Options) built(ctx context.Context, p program) (string, error) {
	root, err := toolchain.FindRoot(".")
	if err != nil {
		return "", err
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		return "", err
	}
	// One for each checkout: two of them must not run each other's.
	sum := sha256.Sum256([]byte(root))
	return build(ctx, o, p, root, filepath.Join(cache, fmt.Sprintf("%s-%x", p.name, sum[:8])))
}

// build compiles into a file of its own and renames it, so that several can build at once.
func build(ctx context.Context, o Options, p program, root, dir string) (string, error) {
	begun := o.Clock.Now()
	fmt.Fprintf(o.Progress, "building %s\n", p.title)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	built := filepath.Join(temporary, p.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", built, toolchain.MainModule+"/cmd/"+p.name)
	cmd.Dir = root
	// An interrupted go command may leave temporary files: here they go with the directory.
	cmd.Env = append(toolchain.ProgramEnv(), "GOTMPDIR="+temporary)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = buildStop
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, text.LastLines(string(output), toldLines))
	}
	path := filepath.Join(dir, p.name)
	if err := os.Rename(built, path); err != nil {
		return "", err
	}
	fmt.Fprintf(o.Progress, "built %s in %.1f s\n", p.title, o.Clock.Since(begun).Seconds())
	return path, nil
}
