package localplane_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options localplane.Options
		want    string
	}{
		"missing program":    {localplane.Options{Bin: toolchain.Paths{toolchain.Etcd: "/etcd"}}, "Bin has no path for kube-apiserver"},
		"missing component":  {localplane.Options{Bin: toolchain.Paths{toolchain.Etcd: "/e", toolchain.KubeAPIServer: "/a"}, Kwok: true}, "Bin has no path for kwok"},
		"short grace period": {localplane.Options{Bin: bin, NodeMonitorGracePeriod: time.Second}, "NodeMonitorGracePeriod is 1s: want whole seconds, at least 4s"},
		"odd grace period":   {localplane.Options{Bin: bin, NodeMonitorGracePeriod: 4500 * time.Millisecond}, "NodeMonitorGracePeriod is 4.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := localplane.Start(t.Context(), c.options); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Start returned %v, want %q", err, c.want)
			}
		})
	}
}

// script writes a program that notes its start in a file and runs body.
func script(t *testing.T, body string) (path, notes string) {
	t.Helper()
	dir := t.TempDir()
	path, notes = filepath.Join(dir, "program"), filepath.Join(dir, "notes")
	content := fmt.Sprintf("#!/bin/sh\necho started >> %s\n%s\n", notes, body)
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, notes
}

func starts(t *testing.T, notes string) int {
	t.Helper()
	content, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(content), "started")
}

func TestTakenPortIsTriedAgain(t *testing.T) {
	t.Parallel()
	etcd, notes := script(t, "echo 'listen tcp 127.0.0.1:1: bind: address already in use'; exit 1")
	server, _ := script(t, "exec sleep 60")
	_, err := localplane.Start(t.Context(), localplane.Options{Bin: toolchain.Paths{toolchain.Etcd: etcd, toolchain.KubeAPIServer: server}})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Start returned %v", err)
	}
	if got := starts(t, notes); got != 3 {
		t.Errorf("etcd was started %d times, want 3", got)
	}
}

func TestBrokenComponentIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	etcd, notes := script(t, "echo 'unknown flag'; exit 2")
	server, _ := script(t, "exec sleep 60")
	_, err := localplane.Start(t.Context(), localplane.Options{Bin: toolchain.Paths{toolchain.Etcd: etcd, toolchain.KubeAPIServer: server}})
	if err == nil || !strings.Contains(err.Error(), "etcd ended by itself: exit status 2") || !strings.Contains(err.Error(), "unknown flag") {
		t.Errorf("Start returned %v", err)
	}
	if got := starts(t, notes); got != 1 {
		t.Errorf("etcd was started %d times, want once", got)
	}
}

func TestAbandonedTemporaryDirIsRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	abandoned := filepath.Join(temp, "mainspring-plane-of-a-killed-process")
	if err := os.Mkdir(abandoned, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(abandoned, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	etcd, _ := script(t, "exit 1")
	server, _ := script(t, "exec sleep 60")
	_, err := localplane.Start(t.Context(), localplane.Options{Bin: toolchain.Paths{toolchain.Etcd: etcd, toolchain.KubeAPIServer: server}})
	if err == nil {
		t.Fatal("a plane without etcd started")
	}
	if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the abandoned directory is left: %v", err)
	}
}
