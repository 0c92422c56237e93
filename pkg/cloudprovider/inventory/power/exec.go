package power

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// maxOutput bounds what is kept of a program's output.
	maxOutput = 4 << 10
	// killDelay is how long a program's pipes may stay open after it was killed.
	killDelay = time.Second
	// writableByOthers are the permissions that no program may have: whoever can change it acts as the controller.
	writableByOthers = 0o022
	execPath         = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// program is the driver that runs a program.
type program struct {
	path    string
	machine string
	args    []string
	environ []string
	secrets []string // what must not be seen
}

func (d Dialer) exec(ctx context.Context, machine string, spec v1alpha1.ExecPower) (Driver, error) {
	path, err := allowed(d.ExecDirectory, spec.Command)
	if err != nil {
		return nil, err
	}
	p := &program{path: path, machine: machine, args: spec.Args, environ: []string{execPath}}
	if spec.Secret == nil {
		return p, nil
	}
	data, err := d.Secrets(ctx, spec.Secret.Name)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if !variableName.MatchString(name) {
			return nil, fmt.Errorf("%w: key %q of Secret %q is no name of a variable (A-Z, 0-9 and _)", ErrConfig, name, spec.Secret.Name)
		}
		p.environ = append(p.environ, name+"="+string(data[name]))
		p.secrets = append(p.secrets, string(data[name]))
	}
	return p, nil
}

// allowed finds a program in the directory of those that may be run, and refuses what leads out of it or what others
// than its owner may change.
func allowed(directory, command string) (string, error) {
	if directory == "" {
		return "", fmt.Errorf("%w: the controller allows no programs; --inventory-exec-directory must name their directory", ErrConfig)
	}
	if command == "" || command != filepath.Base(command) || strings.HasPrefix(command, ".") {
		return "", fmt.Errorf("%w: exec.command is %q; it must be the name of a file in %s", ErrConfig, command, directory)
	}
	root, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return "", fmt.Errorf("%w: --inventory-exec-directory: %w", ErrConfig, err)
	}
	path, err := filepath.EvalSymlinks(filepath.Join(root, command))
	if err != nil {
		return "", fmt.Errorf("%w: exec.command: %w", ErrConfig, err)
	}
	if !strings.HasPrefix(path, root+string(filepath.Separator)) {
		return "", fmt.Errorf("%w: exec.command %q leads out of %s", ErrConfig, command, directory)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: exec.command: %w", ErrConfig, err)
	}
	return path, runnable(info)
}

func runnable(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return fmt.Errorf("%w: exec.command %q is not a file", ErrConfig, info.Name())
	case mode.Perm()&0o111 == 0:
		return fmt.Errorf("%w: exec.command %q is not executable", ErrConfig, info.Name())
	case mode.Perm()&writableByOthers != 0:
		return fmt.Errorf("%w: exec.command %q may be written by others than its owner (%s)", ErrConfig, info.Name(), mode.Perm())
	}
	return nil
}

func (p *program) State(ctx context.Context) (State, error) {
	out, err := p.run(ctx, actionStatus)
	if err != nil {
		return v1alpha1.PowerUnknown, err
	}
	return parseState(strings.TrimSpace(out), "program "+filepath.Base(p.path))
}

func (p *program) On(ctx context.Context) error { return p.do(ctx, actionOn) }

func (p *program) Off(ctx context.Context, _ bool) error { return p.do(ctx, actionOff) }

func (p *program) Restart(ctx context.Context) error { return p.do(ctx, actionRestart) }

func (p *program) do(ctx context.Context, action string) error {
	_, err := p.run(ctx, action)
	return err
}

// run runs the program in a process group of its own, so that a hanging one is ended with its children.
func (p *program) run(ctx context.Context, action string) (string, error) {
	cmd := exec.CommandContext(ctx, p.path, append([]string{action, p.machine}, p.args...)...)
	cmd.Env, cmd.Dir = p.environ, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	stdout, stderr := &bounded{}, &bounded{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("running %s %s: %w", filepath.Base(p.path), action, ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", filepath.Base(p.path), action, err, redact(stderr.String(), p.secrets))
	}
	return stdout.String(), nil
}

// bounded keeps the beginning of what is written to it. It embeds no buffer, whose ReadFrom would go past the bound.
type bounded struct{ kept bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	if room := maxOutput - b.kept.Len(); room > 0 {
		_, _ = b.kept.Write(data[:min(room, len(data))]) // a Buffer never fails to write
	}
	return len(data), nil
}

func (b *bounded) String() string { return b.kept.String() }

// redact takes secrets out of a text.
func redact(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return strings.TrimSpace(text)
}
