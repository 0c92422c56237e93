package toolchain_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func TestBuildProgramsTellsWhatItDoes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"go.mod": "module example.test/hello\n", "main.go": "package main\n\nfunc main() { println(\"hello\") }\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var progress bytes.Buffer
	if err := toolchain.BuildPrograms(t.Context(), &progress, "the programs", "-o", "hello", "."); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hello")).CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Errorf("the program prints %q (%v)", out, err)
	}
	if text := progress.String(); !strings.Contains(text, "the programs: building from .") || !strings.Contains(text, "the programs: built in ") {
		t.Errorf("the user is told %q", text)
	}

	if err := os.WriteFile("main.go", []byte("package main\n\nfunc main() { missing() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := toolchain.BuildPrograms(t.Context(), &progress, "the programs", "-o", "hello", "."); err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("the error is %v; want the compiler's words", err)
	}
}

// Programs that are built outside of make are compiled as in it.
func TestProgramsAreBuiltAsByMake(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "")
	env := toolchain.ProgramEnv()
	i := slices.IndexFunc(env, func(s string) bool { return strings.HasPrefix(s, "GOFLAGS=-") })
	if i < 0 || !strings.Contains(string(makefile), "\nexport GOFLAGS := "+strings.TrimPrefix(env[i], "GOFLAGS=")+"\n") || !slices.Contains(env, "CGO_ENABLED=0") {
		t.Errorf("built with %v, and by make otherwise", env[max(0, i):])
	}
	t.Setenv("GOFLAGS", "-race")
	if env := toolchain.ProgramEnv(); slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "GOFLAGS=-buildvcs") }) {
		t.Error("the user's own flags were replaced")
	}
}
