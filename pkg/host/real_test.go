package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// In the kernel's own hierarchy, as a kubelet with a --cgroup-root of its own makes it. No real-time budget is
// touched.
func TestContainerGroupInTheKernel(t *testing.T) {
	t.Parallel()
	privileged.Require(t, privileged.Root)
	h := host.New("/")
	cgroups, err := h.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	controller := "cpu"
	if !cgroups.Has(controller) {
		controller = host.Unified
	}
	root, err := cgroups.Dir(controller, "/")
	if err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	for _, name := range []string{"", "kubepods", "burstable", "pod" + podUID, container} {
		group = filepath.Join(group, name)
		dir := filepath.Join(root, group)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Rmdir(dir) })
	}
	got, err := h.ContainerGroup(podUID, "containerd://"+container)
	if err != nil || got != group {
		t.Fatalf("got %q, %v, want %q", got, err, group)
	}
	dir, err := cgroups.Dir(controller, got)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := host.ID(dir); err != nil || id == 0 {
		t.Errorf("got %d, %v", id, err)
	}
}
