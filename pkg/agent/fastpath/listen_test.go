package fastpath_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A socket on which a process answers, and what is no socket, are left alone; one that a killed process left is not.
func TestOnlyAnAbandonedSocketIsReplaced(t *testing.T) {
	n := start(t, newKernel(), t.TempDir())
	dir := t.TempDir()
	used, abandoned, file := filepath.Join(dir, "used"), filepath.Join(dir, "abandoned"), filepath.Join(dir, "file")
	listen := func(socket string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return l
	}
	other := listen(used)
	defer func() { _ = other.Close() }()
	if err := listen(abandoned).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, reason := range map[string]string{used: "another process answers", file: "is no socket"} {
		if err := n.Serve(t.Context(), socket, func() { t.Errorf("%s: it listens", socket) }); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v; want %q", socket, err, reason)
		}
		if _, err := os.Lstat(socket); err != nil {
			t.Errorf("it was removed: %v", err)
		}
	}
	if _, err := serve(t, n, abandoned).Report(t.Context()); err != nil {
		t.Errorf("the abandoned socket: %v", err)
	}
}
