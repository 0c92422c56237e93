package fastpath_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

// A process that is killed while it keeps a table leaves half of one beside it. The next one's takes its place: none gathers.
func TestHalfATableIsWrittenOver(t *testing.T) {
	dir := t.TempDir()
	half := filepath.Join(dir, "table.json.new")
	if err := os.WriteFile(half, []byte(`{"generation":7`+strings.Repeat(" ", 1<<16)), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, newKernel("/a"), dir).apply(tableOf(1, high("a", "/a", 0)))
	if data, err := os.ReadFile(filepath.Join(dir, "table.json")); err != nil || !json.Valid(data) {
		t.Errorf("kept is %q, %v", data, err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half one: %v; want it gone", err)
	}
}

// A kept table that is longer than any that could have been sent is not read to its end, though it would make sense. It is put aside as a broken one is.
func TestAKeptTableThatIsTooLongIsPutAside(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "table.json")
	if err := os.WriteFile(file, []byte(`{"generation":7}`+strings.Repeat(" ", 2*client.MaxBody)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, newKernel("/a"), dir).Report()
	if r.Generation != 0 || !strings.Contains(strings.Join(r.Missing, "\n"), file+" cannot be used") {
		t.Errorf("generation %d, %q; want why nobody is governed", r.Generation, r.Missing)
	}
	if _, err := os.Stat(file + ".broken"); err != nil {
		t.Errorf("put aside: %v", err)
	}
}
