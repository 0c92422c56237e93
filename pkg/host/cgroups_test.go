package host_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

func TestDir(t *testing.T) {
	t.Parallel()
	tree := hosttest.Lab(t)
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cgroups.Dir("cpuset", "/kubepods/burstable")
	if want := filepath.Join(tree.Dir(), "sys/fs/cgroup/cpuset/kubepods/burstable"); err != nil || dir != want {
		t.Errorf("got %q, %v, want %q", dir, err, want)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := host.ID(dir); err != nil || id == 0 || !info.IsDir() {
		t.Errorf("got %d, %v", id, err)
	}
	if err := os.Symlink(dir, filepath.Join(filepath.Dir(dir), "link")); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"", "kubepods", "/kubepods/", "/kubepods/..", "/../x", "//kubepods", "/kubepods/link", "/kubepods/cpuset.cpus"} {
		if dir, err := cgroups.Dir("cpuset", wrong); err == nil {
			t.Errorf("%q: got %q, want a refusal", wrong, dir)
		}
	}
	if _, err := cgroups.Dir("cpu", "/kubepods/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := cgroups.Dir("rdma", "/"); !errors.Is(err, host.ErrNoController) || !strings.Contains(err.Error(), "rdma") {
		t.Errorf("got %v", err)
	}
	if _, err := host.ID(dir + "/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// In a container the machine's hierarchies are seen through a cgroup namespace, and over the container's own.
func TestCgroupsSeenFromAContainer(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0})
	tree.Mount("/", "/sys", "sysfs", "")
	tree.Mount("/", "/sys/fs/cgroup", "cgroup2", "")                 // the container's own
	tree.Mount("/../../../..", "/mnt/cgroup", "cgroup2", "")         // the machine's
	tree.Mount("/kubepods/pod1/abc", "/other/cgroup", "cgroup2", "") // a part
	tree.Write("mnt/cgroup/cgroup.controllers", "cpu cpuset")
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := cgroups.Dir("cpu", "/"); err != nil || dir != filepath.Join(tree.Dir(), "mnt/cgroup") {
		t.Errorf("got %q, %v", dir, err)
	}
	tree.Mount("/", "/mnt", "tmpfs", "") // covers it
	tree.Write("sys/fs/cgroup/cgroup.controllers", "cpu")
	if cgroups, err = tree.Host().Cgroups(); err != nil {
		t.Fatal(err)
	}
	if dir, err := cgroups.Dir("cpu", "/"); err != nil || dir != filepath.Join(tree.Dir(), "sys/fs/cgroup") {
		t.Errorf("got %q, %v", dir, err)
	}
}

// A machine's first mounts are moved to the root that is mounted later: the order of lines says nothing.
func TestCgroupsMountedBeforeTheRoot(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.Write("proc/1/mountinfo", "22 28 0:21 / /sys rw - sysfs sysfs rw\n31 22 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n28 1 254:0 / / rw - ext4 /dev/vda rw")
	tree.Write("sys/fs/cgroup/cgroup.controllers", "cpu")
	if cgroups, err := tree.Host().Cgroups(); err != nil || cgroups.Version != host.V2 || !cgroups.InUnified("cpu") || cgroups.Has("cpuset") {
		t.Errorf("got %+v, %v", cgroups, err)
	}
}

func TestCgroupsMissing(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	if _, err := tree.Host().Cgroups(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	tree.Mount("/", "/sys", "sysfs", "")
	tree.Mount("/kubepods/x", "/sys/fs/cgroup", "cgroup", ",cpu")
	if _, err := tree.Host().Cgroups(); !errors.Is(err, host.ErrNoController) {
		t.Errorf("got %v", err)
	}
}
