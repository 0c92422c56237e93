package toolchain

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// goBuild describes one call of the compiler.
type goBuild struct {
	label   string // for people
	dir     string // of the module
	pkg     string
	ldflags string
	modfile string // stands in for the module's go.mod, unless empty
	tags    []string
	cgo     bool
	out     string
}

// buildFlags are part of an entry's key. They are those of the project's own builds (Makefile), so that a package which both have in the same version is
// compiled once. A fifth of what compiling takes is DWARF, which nothing here reads.
var buildFlags = []string{"-mod=readonly", "-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false"}

// buildTags are those of every build, and part of an entry's key, for the same reason.
var buildTags = []string{"grpcnotrace"}

// stopGrace is how long a cancelled build may take to end.
const stopGrace = 5 * time.Second

// goBuild compiles, reports what is being compiled, and fails with the compiler's own words.
func (t *Toolchain) goBuild(ctx context.Context, b goBuild) error {
	args := append([]string{"build", "-v"}, buildFlags...)
	args = append(args, "-modfile="+b.modfile, "-tags="+strings.Join(slices.Concat(buildTags, b.tags), ","), "-ldflags", b.ldflags, "-o", b.out, b.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.dir, buildEnv()
	if b.cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	return t.build(ctx, b.label, cmd, (*buildLog).add)
}

// programFlags are GOFLAGS of the Makefile, by which every build of our own programs shares what the others have compiled.
const programFlags = "-buildvcs=false -trimpath -gcflags=all=-dwarf=false -tags=nri_no_wasm,grpcnotrace"

// ProgramEnv returns the environment of a build of our own programs outside of make. Flags of the user's own stand.
func ProgramEnv() []string {
	env := append(os.Environ(), "GOTOOLCHAIN=auto")
	if os.Getenv("GOFLAGS") == "" {
		env = append(env, "GOFLAGS="+programFlags, "CGO_ENABLED=0")
	}
	return env
}

// BuildPrograms runs `go build` with the arguments in the working directory, and reports progress as the builds of tools do: a line
// every ten seconds says how many packages are compiled, and which one is at work. label names the build for people.
func BuildPrograms(ctx context.Context, progress io.Writer, label string, args ...string) error {
	t := &Toolchain{Progress: progress, Clock: clock.RealClock{}}
	return t.build(ctx, label, exec.CommandContext(ctx, "go", append([]string{"build", "-v"}, args...)...), (*buildLog).add)
}

// build runs a build to its end, reports what it is at, and fails with the compiler's own words. add sorts its lines.
func (t *Toolchain) build(ctx context.Context, label string, cmd *exec.Cmd, add func(*buildLog, string)) error {
	cmd.WaitDelay = stopGrace
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("preparing the build: %w", err)
	}
	cmd.Stdout = cmd.Stderr // where both are told, a compiler's words and its complaints stay in order

	// The kernel sends Pdeathsig when the thread that started the child ends: keep it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := t.Clock.Now()
	t.printf("%s: building from %s", label, cmp.Or(cmd.Dir, "."))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", filepath.Base(cmd.Path), err)
	}
	log := t.follow(label, stderr, add)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("building %s: %w", label, errors.Join(ctx.Err(), err, log.failure()))
	}
	t.printf("%s: built in %s", label, clockTime(t.Clock.Since(start)))
	return nil
}

// buildLog is what a build printed, boiled down.
type buildLog struct {
	mu         sync.Mutex
	downloaded int
	compiled   int
	files      int
	last       string   // what is being done
	messages   []string // the lines that are neither a download nor a package
}

// keepMessages bounds how much of a failing build is repeated to the user.
const keepMessages = 40

// follow reads the output of a build until it ends, while another goroutine reports the state
// every few seconds. Both end with the stream; follow returns once it is read.
func (t *Toolchain) follow(label string, stderr io.Reader, add func(*buildLog, string)) *buildLog {
	log := &buildLog{}
	ended := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { t.report(label, log, ended) })
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		add(log, lines.Text())
	}
	close(ended)
	reporter.Wait()
	return log
}

func (t *Toolchain) report(label string, log *buildLog, ended <-chan struct{}) {
	start := t.Clock.Now()
	ticker := t.Clock.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C():
			t.printf("%s: %s, %s", label, clockTime(t.Clock.Since(start)), log.state())
		}
	}
}

func (l *buildLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		l.downloaded++
		l.last = strings.TrimPrefix(line, "go: ")
	case strings.ContainsAny(line, " \t:"):
		l.messages = append(l.messages, line)
	default:
		l.compiled++
		l.last = "compiling " + line
	}
}

// addMake sorts a line of a Makefile that tells each step as "  CC  file".
func (l *buildLog) addMake(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	step := strings.Fields(line)
	if strings.HasPrefix(line, "  ") && len(step) == 2 {
		l.files++
		l.last = "compiling " + step[1]
		return
	}
	l.messages = append(l.messages, line)
	l.messages = l.messages[max(0, len(l.messages)-keepMessages):]
}

func (l *buildLog) state() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	what := fmt.Sprintf("%d modules downloaded, %d packages compiled", l.downloaded, l.compiled)
	if l.files > 0 {
		what = fmt.Sprintf("%d files compiled", l.files)
	}
	return what + ", " + cmp.Or(l.last, "linking")
}

// failure returns the compiler's messages as an error, or nil.
func (l *buildLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.messages) == 0 {
		return nil
	}
	from := max(0, len(l.messages)-keepMessages)
	return errors.New(strings.Join(l.messages[from:], "\n"))
}
