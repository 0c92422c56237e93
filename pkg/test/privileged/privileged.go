// Package privileged guards tests that need more than an ordinary user has, and keeps tests that change
// what the whole machine shares apart from each other.
package privileged

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Need is something that a test cannot do without.
type Need struct {
	// What it is, as in "needs ...".
	What string
	// Missing says why it is not there; nil when it is.
	Missing func() error
}

// Root is the right to do everything.
var Root = Need{What: "root", Missing: func() error {
	if os.Geteuid() != 0 {
		return os.ErrPermission
	}
	return nil
}}

// RTGroups are real-time groups of cgroup v1.
var RTGroups = Need{What: "cgroup v1 with RT group scheduling", Missing: func() error {
	_, err := os.Stat("/sys/fs/cgroup/cpu/cpu.rt_runtime_us")
	return err
}}

// BTF is the kernel's type information, which programs are relocated with.
var BTF = Need{What: "a kernel with BTF", Missing: func() error {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err
}}

// Require skips the test aloud when a need is missing, and fails it in CI, where none may be.
func Require(t testing.TB, needs ...Need) {
	t.Helper()
	for _, n := range needs {
		err := n.Missing()
		if err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("this test needs %s: %v", n.What, err)
		}
		t.Skipf("SKIPPED: this test needs %s: %v", n.What, err)
	}
}

// Machine has the test wait until no other test of this machine schedules real-time tasks, makes RT groups or
// attaches to the scheduler: the bandwidth for RT groups is one pot, and a FIFO task of another test
// would be part of what this one measures. The lock goes with the test. What tests that were killed left is removed.
func Machine(t testing.TB) {
	t.Helper()
	unlock, err := Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	removeLeftover("/sys/fs/cgroup", "/proc")
}

// Lock is what Machine does, for programs that are no tests.
func Lock() (unlock func(), err error) {
	path := filepath.Join(os.TempDir(), "mainspring-machine.lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the machine's lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("taking the machine's lock: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
