package host_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

func TestMemoryOfAGroup(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0})
	tree.Mount("/", "/sys/fs/cgroup", "cgroup2", "")
	tree.Write("sys/fs/cgroup/cgroup.controllers", "cpu memory")
	tree.Write("sys/fs/cgroup/kubepods/pod1/memory.current", "4096\n")
	tree.Write("sys/fs/cgroup/kubepods/pod2/memory.current", "max\n")
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	if bytes, err := cgroups.Memory("/kubepods/pod1"); bytes != 4096 || err != nil {
		t.Errorf("%d, %v", bytes, err)
	}
	for _, group := range []string{"/kubepods/pod2", "/kubepods/pod3"} {
		if bytes, err := cgroups.Memory(group); err == nil {
			t.Errorf("group %s has %d bytes", group, bytes)
		}
	}
}

func TestMemoryOfAGroupOfItsOwnHierarchy(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0})
	tree.Mount("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory")
	tree.Write("sys/fs/cgroup/memory/kubepods/pod1/memory.usage_in_bytes", "8192\n")
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	if bytes, err := cgroups.Memory("/kubepods/pod1"); bytes != 8192 || err != nil {
		t.Errorf("%d, %v", bytes, err)
	}
}
