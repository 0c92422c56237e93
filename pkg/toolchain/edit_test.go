package toolchain_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

const (
	wordsSource = "package said\n\n// Word is a word.\nconst Word = \"mistaken\"\n"
	wordsMod    = greetMod + "\nrequire example.test/words v1.0.0\n\nreplace example.test/words => ../../words\n"
	sayWords    = "package main\n\nimport (\"fmt\"; \"example.test/words/said\")\n\nfunc main() { fmt.Println(said.Word) }\n"
)

// editing gives the workshop's programs a word of another module, and their recipe an edit of it.
func editing(t *testing.T, old string) (workshop, *toolchain.Toolchain) {
	t.Helper()
	w := newWorkshop(t)
	w.write(t, "tools/greet/go.mod", wordsMod)
	w.write(t, "tools/greet/main.go", sayWords)
	w.write(t, "words/go.mod", "module example.test/words\n\ngo 1.26\n")
	w.write(t, "words/said/words.go", wordsSource)
	tc, _ := w.toolchain()
	tc.Recipes[0].Edit = &toolchain.Edit{
		Module: "example.test/words", Package: "example.test/words/said", File: "words.go",
		Changes: []toolchain.Change{{Old: old, New: `"mended"`}},
	}
	return w, tc
}

func TestEditIsBuiltIn(t *testing.T) {
	w, tc := editing(t, `"mistaken"`)
	expectOrigin(t, w.ensure(t), toolchain.Built) // another entry, without the edit
	installed, err := tc.Ensure(t.Context(), "hello")
	if err != nil {
		t.Fatal(err)
	}
	expectOrigin(t, installed, toolchain.Built)
	out, err := exec.Command(installed[0].Path).Output()
	if err != nil || string(out) != "mended\n" {
		t.Errorf("the edited program prints %q (%v)", out, err)
	}
	source, err := os.ReadFile(filepath.Join(w.Root, "words/said/words.go"))
	if err != nil || string(source) != wordsSource {
		t.Errorf("the source is now %q (%v)", source, err)
	}
}

func TestEditThatDoesNotFitFailsTheBuild(t *testing.T) {
	for name, old := range map[string]string{"not there": "gone upstream", "ambiguous": "Word"} {
		t.Run(name, func(t *testing.T) {
			w, tc := editing(t, old)
			if _, err := tc.Ensure(t.Context(), "hello"); !errors.Is(err, toolchain.ErrEditDoesNotFit) {
				t.Errorf("the error is %v, want %v", err, toolchain.ErrEditDoesNotFit)
			}
			if left := w.entries(t); len(left) != 0 {
				t.Errorf("the cache holds %v", left)
			}
		})
	}
}
