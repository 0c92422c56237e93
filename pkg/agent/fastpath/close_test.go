package fastpath_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The programs' memory goes after Close: a table that is being put in force then is finished first, and nothing is begun
// later.
func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	applied, closed := make(chan error, 1), make(chan error, 1)
	k.change(func() { // opening a group waits for its end
		go func() { applied <- n.Apply(tableOf(1, high("a", "/a", 0))) }()
		for { // the engine is at it once the table is on disk
			if _, err := os.Stat(filepath.Join(n.dir, "table.json")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		go func() { closed <- n.Close() }()
		time.Sleep(50 * time.Millisecond) // it has every chance to be wrong
		if n.programs.closed.Load() {
			t.Error("the programs are closed while a table is being put in force")
		}
	})
	if err := <-applied; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil || !n.programs.closed.Load() {
		t.Errorf("closed %t, %v", n.programs.closed.Load(), err)
	}
	reported := make(chan struct{})
	go func() { n.Report(); close(reported) }()
	select {
	case <-reported:
		t.Error("the programs' memory is used after the end")
	case <-time.After(50 * time.Millisecond):
	}
}
