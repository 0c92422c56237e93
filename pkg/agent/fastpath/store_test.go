package fastpath_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

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
