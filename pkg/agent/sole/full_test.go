package sole_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// A lock is held on a disk that is full, which has no room for who holds it.
func TestALockOnADiskThatIsFull(t *testing.T) {
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
	if err := os.WriteFile(filepath.Join(dir, "filler"), bytes.Repeat([]byte("x"), 128<<10), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	for range 2 {
		l, err := sole.Take(t.Context(), dir, "lock", sole.Waiting{Clock: clock.RealClock{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
