package toolchain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// childEnv makes this test binary call Ensure on the toolchain it describes and exit.
const childEnv = "TOOLCHAIN_TEST_CHILD"

func TestMain(m *testing.M) {
	if description := os.Getenv(childEnv); description != "" {
		os.Exit(runChild(description))
	}
	os.Exit(m.Run())
}

// workshop is a main module with one tools module, "greet", whose binary is the programs hello
// and goodbye.
type workshop struct {
	Root, Cache string
}

const greetSource = `package main

import ("fmt"; "os"; "path/filepath")

var version = "unset"

func main() { fmt.Println(filepath.Base(os.Args[0]), "version", version) }
`

// greetMod pins a module that nothing imports: the version is all that is read.
const greetMod = "module example.test/greet\n\ngo 1.26\n\nrequire (\n\texample.test/pin v1.2.3\n)\n"

func newWorkshop(t *testing.T) workshop {
	t.Helper()
	w := workshop{Root: t.TempDir(), Cache: t.TempDir()}
	w.write(t, "go.mod", "module "+toolchain.MainModule+"\n")
	w.write(t, "tools/greet/go.mod", greetMod)
	w.write(t, "tools/greet/main.go", greetSource)
	return w
}

func (w workshop) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(w.Root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// toolchain returns a new toolchain over the workshop and what it reports.
func (w workshop) toolchain() (*toolchain.Toolchain, *bytes.Buffer) {
	progress := &bytes.Buffer{}
	args := []string{"version"}
	return &toolchain.Toolchain{
		Root: w.Root, Cache: w.Cache, Progress: progress, Clock: clock.RealClock{},
		Recipes: []toolchain.Recipe{{
			Module: "greet", Package: ".", Binary: "greet",
			LDFlags: []string{"-X main.version={version:example.test/pin}-{major:example.test/pin}.{minor:example.test/pin}"},
			Programs: []toolchain.Program{
				{Name: "hello", Pin: "example.test/pin", VersionArgs: args},
				{Name: "goodbye", Pin: "example.test/pin", VersionArgs: args, Exact: true},
			},
		}},
	}, progress
}

func (w workshop) ensure(t *testing.T, tools ...toolchain.Tool) []toolchain.Installed {
	t.Helper()
	tc, _ := w.toolchain()
	installed, err := tc.Ensure(t.Context(), tools...)
	if err != nil {
		t.Fatal(err)
	}
	return installed
}

// entries lists what is in the cache, without lock files.
func (w workshop) entries(t *testing.T) []string {
	t.Helper()
	all, err := os.ReadDir(w.Cache)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func expectOrigin(t *testing.T, installed []toolchain.Installed, want toolchain.Origin) {
	t.Helper()
	for _, i := range installed {
		if i.Origin != want {
			t.Errorf("%s is %s, want %s", i.Tool, i.Origin, want)
		}
	}
}

func TestBuildsOnce(t *testing.T) {
	w := newWorkshop(t)
	first := w.ensure(t)
	expectOrigin(t, first, toolchain.Built)
	second := w.ensure(t)
	expectOrigin(t, second, toolchain.Cached)
	if first[0].Path != second[0].Path || second[0].Took != first[0].Took {
		t.Errorf("the second call gave %+v after %+v", second[0], first[0])
	}
}

func TestProgramsRunByTheirNames(t *testing.T) {
	w := newWorkshop(t)
	for _, i := range w.ensure(t, "goodbye", "hello") {
		out, err := exec.Command(i.Path).Output()
		if want := string(i.Tool) + " version v1.2.3-1.2\n"; err != nil || string(out) != want {
			t.Errorf("%s prints %q (%v), want %q", i.Tool, out, err, want)
		}
		if i.Version != "v1.2.3" {
			t.Errorf("%s has version %s", i.Tool, i.Version)
		}
	}
}

func TestRebuiltOnChange(t *testing.T) {
	for name, change := range map[string]struct{ file, content string }{
		"source":   {"tools/greet/main.go", greetSource + "// changed\n"},
		"go.mod":   {"tools/greet/go.mod", greetMod + "// changed\n"},
		"new file": {"tools/greet/more.go", "package main\n"},
		"go.sum":   {"tools/greet/go.sum", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			expectOrigin(t, w.ensure(t), toolchain.Built)
			w.write(t, change.file, change.content)
			expectOrigin(t, w.ensure(t), toolchain.Built)
		})
	}
}

func TestNotRebuiltOnUnrelatedChange(t *testing.T) {
	w := newWorkshop(t)
	w.ensure(t)
	w.write(t, "tools/greet/README.md", "words")
	w.write(t, "main.go", "package main")
	expectOrigin(t, w.ensure(t), toolchain.Cached)
}

func TestDamagedEntryIsRebuilt(t *testing.T) {
	w := newWorkshop(t)
	path := w.ensure(t)[0].Path
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expectOrigin(t, w.ensure(t), toolchain.Built)
}

func TestGoroutinesBuildOnce(t *testing.T) {
	w := newWorkshop(t)
	var mu sync.Mutex
	built := 0
	var calls sync.WaitGroup
	for range 6 {
		calls.Go(func() {
			tc, _ := w.toolchain()
			installed, err := tc.Ensure(t.Context(), "hello")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if installed[0].Origin == toolchain.Built {
				built++
			}
		})
	}
	calls.Wait()
	if built != 1 {
		t.Errorf("%d goroutines built, want 1", built)
	}
}

func TestProcessesBuildOnce(t *testing.T) {
	w := newWorkshop(t)
	var children []*exec.Cmd
	var outputs []*bytes.Buffer
	for range 4 {
		child, out := w.child(t)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		children, outputs = append(children, child), append(outputs, out)
	}
	built := 0
	for i, child := range children {
		if err := child.Wait(); err != nil {
			t.Fatalf("%v: %s", err, outputs[i])
		}
		if strings.HasPrefix(outputs[i].String(), string(toolchain.Built)) {
			built++
		}
	}
	if built != 1 {
		t.Errorf("%d processes built, want 1", built)
	}
}

// child is this test binary, calling Ensure for "hello" in a process of its own.
func (w workshop) child(t *testing.T) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	description, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+string(description))
	child.Stdout, child.Stderr = out, out
	return child, out
}

func runChild(description string) int {
	var w workshop
	if err := json.Unmarshal([]byte(description), &w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tc, _ := w.toolchain()
	installed, err := tc.Ensure(context.Background(), "hello")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(installed[0].Origin)
	return 0
}

func TestFailedBuildLeavesNothingAndTellsWhy(t *testing.T) {
	w := newWorkshop(t)
	w.write(t, "tools/greet/main.go", "package main\n\nfunc main() { undefinedName() }\n")
	tc, _ := w.toolchain()
	_, err := tc.Ensure(t.Context(), "hello")
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedName") {
		t.Errorf("the error does not repeat the compiler: %v", err)
	}
	if left := w.entries(t); len(left) != 0 {
		t.Errorf("a failed build left %v", left)
	}
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	w := newWorkshop(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tc, _ := w.toolchain()
	if _, err := tc.Ensure(ctx, "hello"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call returned %v", err)
	}
	if left := w.entries(t); len(left) != 0 {
		t.Errorf("a cancelled build left %v", left)
	}
}

func TestUnknownToolNamesTheKnown(t *testing.T) {
	tc, _ := newWorkshop(t).toolchain()
	_, err := tc.Ensure(t.Context(), "helo")
	if err == nil || !strings.Contains(err.Error(), `"helo" is not known; known are hello, goodbye`) {
		t.Errorf("Ensure returned %v", err)
	}
}

func TestOutsideACheckout(t *testing.T) {
	w := newWorkshop(t)
	tc, _ := w.toolchain()
	tc.Root = ""
	t.Chdir(t.TempDir())
	_, err := tc.Ensure(t.Context(), "hello")
	if !errors.Is(err, toolchain.ErrNoCheckout) || !strings.Contains(err.Error(), "MAINSPRING_ASSETS") {
		t.Errorf("Ensure returned %v, want ErrNoCheckout and what to do", err)
	}
}

func TestRootIsFoundFromBelow(t *testing.T) {
	w := newWorkshop(t)
	tc, _ := w.toolchain()
	tc.Root = ""
	t.Chdir(filepath.Join(w.Root, "tools", "greet")) // a module of its own, not the main one
	if _, err := tc.Ensure(t.Context(), "hello"); err != nil {
		t.Error(err)
	}
}
