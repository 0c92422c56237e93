package toolchain_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
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
