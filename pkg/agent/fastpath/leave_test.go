package fastpath_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
)

// Where no core is left the containers of the table go without us, and the table stays for when there is one again.
func TestLeave(t *testing.T) {
	k, dir := newKernel("/b", "/a"), t.TempDir()
	if err := fastpath.Leave(dir, k); err != nil || k.sweeps.Load() != 0 {
		t.Errorf("without a table nobody knows what is needed: %v, %d sweeps", err, k.sweeps.Load())
	}
	n := start(t, k, dir)
	n.apply(tableOf(1, high("b", "/b", 0), high("a", "/a", 1), high("c", "", 1)))
	n.end()
	k = newKernel("/b", "/a")
	if err := fastpath.Leave(dir, k); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/a", "/b"}; !slices.Equal(k.spared, want) || k.sweeps.Load() != 1 {
		t.Errorf("spares %v, %d sweeps; want %v, one", k.spared, k.sweeps.Load(), want)
	}
	if !fastpath.Governed(dir) {
		t.Error("the table has gone")
	}
	if err := os.WriteFile(filepath.Join(dir, "table.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fastpath.Leave(dir, k); err == nil || k.sweeps.Load() != 1 {
		t.Errorf("%v, %d sweeps: a table that cannot be read says of nobody that he may be put back", err, k.sweeps.Load())
	}
}
