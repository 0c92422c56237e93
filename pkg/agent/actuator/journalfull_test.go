package actuator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// smallDisk mounts one of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	privileged.Require(t, privileged.Root)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves no room on it, but for what files have of their last pages.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 64<<10), 0o600); err == nil {
		t.Fatal("a disk of 64 KiB has room for as much beside a journal")
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func aboutGroup(i int) record {
	return record{Controller: "cpu", Group: fmt.Sprintf("/g%d", i), Inode: uint64(i), File: "cpu.max", Before: strings.Repeat("x", 300)}
}

// A line for which there is no room is not there in part, and what comes later is not written behind that. A process that is started while
// there is none goes on with what there is.
func TestAJournalOnADiskThatIsFull(t *testing.T) {
	dir := smallDisk(t)
	j, err := openJournal(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	empty, kept := fill(t, dir), 0
	for ; kept < 100; kept++ {
		if err = j.keep(aboutGroup(kept)); err != nil {
			break
		}
	}
	if err == nil || kept == 0 || j.has(aboutGroup(kept)) {
		t.Fatalf("%d records are kept on a disk that is full, and then: %v", kept, err)
	}
	started, err := openJournal(dir, "b")
	if err != nil {
		t.Fatalf("the next process, while the disk is full: %v", err)
	}
	if len(started.records) != kept {
		t.Errorf("it has %d records; want the %d that were kept", len(started.records), kept)
	}
	if err := j.drop(j.records[0]); err == nil {
		t.Error("a journal is written anew on a disk that is full")
	}
	empty()
	if err := j.mend(); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if later, err := openJournal(dir, "b"); err != nil || len(later.records) != kept-1 {
		t.Fatalf("the next process has %d records, %v; want %d, as one was dropped", len(later.records), err, kept-1)
	}
	if err := j.keep(aboutGroup(100)); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	next, err := openJournal(dir, "b")
	if err != nil {
		t.Fatalf("the process after it: %v", err)
	}
	if n := len(next.records); n != kept || next.records[kept-1].Group != "/g100" {
		t.Errorf("it has %d records; want %d, and the one that came last", n, kept)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
