package host_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

const (
	podUID    = "0c1f6a5e-3c9e-4d0a-9c3b-6b1a2f4d5e6f"
	container = "1f2e3d4c5b6a79880123456789abcdef0123456789abcdef0123456789abcdef"
	other     = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	for root, want := range map[string]string{"/": "/proc/stat", "": "/proc/stat", "/host": "/host/proc/stat", "/host/": "/host/proc/stat", "host": "/host/proc/stat"} {
		if got := host.New(root).Proc("stat"); got != want {
			t.Errorf("%q: got %q, want %q", root, got, want)
		}
	}
	if got := host.New("/host").Path("..", "/../etc"); got != "/host/etc" {
		t.Errorf("got %q", got)
	}
	if (host.Host{}).Sys("x") != "/sys/x" || !host.New("/").Local() || host.New("/host").Local() || host.New("/host").Root() != "/host" {
		t.Error("the zero value is the machine itself, another root is not")
	}
}

func TestTopology(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0, Siblings: "0,4"}, hosttest.CPU{ID: 1, NUMA: 1, Package: 1}, hosttest.CPU{ID: 3, Offline: true},
		hosttest.CPU{ID: 4, Siblings: "0,4"}, hosttest.CPU{ID: 5, Siblings: "5-7"}, hosttest.CPU{ID: 6, Siblings: "5-7"}, hosttest.CPU{ID: 7, Siblings: "5-7"})
	tree.Write("sys/devices/system/cpu/isolated", "1,3,4")
	got, err := tree.Host().Topology()
	none := host.NoSibling
	want := host.Topology{Cores: []host.Core{
		{ID: 0, Sibling: 4, Online: true}, {ID: 1, NUMA: 1, Package: 1, Sibling: none, Online: true, Isolated: true},
		{ID: 3, NUMA: host.Unknown, Package: host.Unknown, Sibling: none, Isolated: true}, {ID: 4, Sibling: 0, Online: true, Isolated: true},
		{ID: 5, Sibling: 6, Online: true}, {ID: 6, Sibling: 5, Online: true}, {ID: 7, Sibling: 5, Online: true},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
	if !slices.Equal(got.Online(), []int{0, 1, 4, 5, 6, 7}) || !slices.Equal(got.Isolated(), []int{1, 4}) {
		t.Errorf("online %v, isolated %v", got.Online(), got.Isolated())
	}
}

func TestTopologyOfLittleKernels(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0}, hosttest.CPU{ID: 1})
	tree.Remove("sys/devices/system/node") // without NUMA
	tree.Remove("sys/devices/system/cpu/isolated")
	tree.Remove("sys/devices/system/cpu/cpu1/topology")
	got, err := tree.Host().Topology()
	want := []host.Core{{ID: 0, Sibling: host.NoSibling, Online: true}, {ID: 1, Package: host.Unknown, Sibling: host.NoSibling, Online: true}}
	if err != nil || !slices.Equal(got.Cores, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	tree.Write("sys/devices/system/cpu/online", "none")
	if _, err := tree.Host().Topology(); err == nil || !strings.Contains(err.Error(), "cpu/online") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestNoHzFull(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	for text, want := range map[string][]int{"(null)": nil, "": nil, "2-3": {2, 3}} {
		tree.Write("sys/devices/system/cpu/nohz_full", text)
		if got, err := tree.Host().NoHzFull(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	tree.Remove("sys/devices/system/cpu/nohz_full")
	if got, err := tree.Host().NoHzFull(); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestMachines(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		tree            *hosttest.Tree
		version         host.Version
		rtGroups, cpuV1 bool
		online          int
	}{
		"lab":          {tree: hosttest.Lab(t), version: host.Hybrid, rtGroups: true, cpuV1: true, online: 2},
		"distribution": {tree: hosttest.Distribution(t), version: host.V2, online: 4},
		"blocked":      {tree: hosttest.Blocked(t), version: host.V2, rtGroups: true, online: 4},
		"edge":         {tree: hosttest.Edge(t), version: host.V2, online: 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := want.tree.Host()
			cgroups, err := h.Cgroups()
			if err != nil || cgroups.Version != want.version || !cgroups.Has("cpu") || !cgroups.Has("cpuset") || cgroups.InUnified("cpu") == want.cpuV1 {
				t.Errorf("got %+v, %v", cgroups, err)
			}
			if rt, err := h.RTGroupSched(); err != nil || rt != want.rtGroups {
				t.Errorf("RT groups: got %v, %v", rt, err)
			}
			if top, err := h.Topology(); err != nil || len(top.Online()) != want.online {
				t.Errorf("got %+v, %v", top, err)
			}
			if times, err := h.CPUTimes(); err != nil || len(times) != want.online {
				t.Errorf("got %+v, %v", times, err)
			}
			if runtime, period, err := h.RTLimits(); err != nil || runtime != 950_000 || period != 1_000_000 {
				t.Errorf("got %d of %d, %v", runtime, period, err)
			}
		})
	}
}

func TestPSI(t *testing.T) {
	t.Parallel()
	tree := hosttest.Distribution(t)
	psi, err := tree.Host().PSI("cpu", "")
	if err != nil || psi.Some.Avg10 != 125 {
		t.Errorf("got %+v, %v", psi, err)
	}
	if _, err := tree.Host().PSI("cpu", "/kubepods.slice"); err != nil {
		t.Errorf("of a group: %v", err)
	}
	if _, err := hosttest.Blocked(t).Host().PSI("cpu", ""); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("without: got %v", err)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	tree := hosttest.Lab(t)
	h := tree.Host()
	if got := h.Glob("/proc/irq/[0-9]*"); !slices.Equal(got, []string{"/proc/irq/24"}) {
		t.Errorf("got %v", got)
	}
	if got := h.Glob("/proc/["); got != nil {
		t.Errorf("a wrong pattern: got %v", got)
	}
	if got := h.Dirs("/proc/irq/24"); !slices.Equal(got, []string{"virtio0"}) {
		t.Errorf("got %v", got)
	}
	if got := h.Dirs("/gone"); got != nil {
		t.Errorf("got %v", got)
	}
	if got := h.Rel("/elsewhere"); got != "/elsewhere" {
		t.Errorf("got %q", got)
	}
	if got, err := h.Read("/proc/../proc/sys/kernel/osrelease"); err != nil || got != "6.18.44" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := h.KernelVersion(); err != nil || got != "#1 SMP PREEMPT_DYNAMIC" {
		t.Errorf("got %q, %v", got, err)
	}
	if limit, err := h.MemlockLimit(); err != nil || !limit.Unlimited || limit.String() != "unlimited" {
		t.Errorf("got %v, %v", limit, err)
	}
	tree.WriteBytes("proc/stat", make([]byte, 17<<20))
	if _, err := h.CPUTimes(); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file beyond all bounds: %v", err)
	}
}

// The machine that the test runs on is one too.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	h := host.New("/")
	top, err := h.Topology()
	if err != nil || len(top.Online()) == 0 {
		t.Errorf("got %+v, %v", top, err)
	}
	if times, err := h.CPUTimes(); err != nil || len(times) != len(top.Online()) {
		t.Errorf("got %+v, %v", times, err)
	}
	if cgroups, err := h.Cgroups(); err != nil || cgroups.Version == "" {
		t.Errorf("got %+v, %v", cgroups, err)
	}
	if _, err := h.Capabilities(); err != nil {
		t.Error(err)
	}
}
