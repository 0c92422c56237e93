package host_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

func FuzzParseCPUList(f *testing.F) {
	for _, seed := range []string{"0-3,7", "0-30:2/4", "", "3-1", "0-8191,0-8191"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := host.ParseCPUList(text)
		if err != nil {
			return
		}
		again, err := host.ParseCPUList(host.FormatCPUList(cpus))
		if err != nil || !slices.Equal(cpus, again) {
			t.Fatalf("%q is %v, written and read again %v, %v", text, cpus, again, err)
		}
	})
}

func FuzzParseMountInfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw")
	f.Add("20 20 0:1 / / rw - cgroup2 x rw\n21 20 0:2 / / rw - cgroup x rw,cpu")
	f.Fuzz(func(t *testing.T, text string) {
		if mounts, err := host.ParseMountInfo(text); err == nil {
			for _, m := range mounts {
				if !strings.HasPrefix(m.Point, "/") {
					t.Fatalf("mount point %q", m.Point)
				}
			}
		}
	})
}

// FuzzCgroups has the whole way from a mountinfo file to directories on it: they stay below the root.
func FuzzCgroups(f *testing.F) {
	f.Add("20 1 0:1 / / rw - ext4 x rw\n21 20 0:2 / /sys/fs/cgroup rw - cgroup2 x rw")
	f.Add("20 1 0:1 / / rw - ext4 x rw\n21 20 0:2 /../.. /../../c rw - cgroup x rw,cpu")
	f.Fuzz(func(t *testing.T, text string) {
		tree := hosttest.New(t)
		tree.Write("proc/1/mountinfo", text)
		cgroups, err := tree.Host().Cgroups()
		if err != nil {
			return
		}
		if dir, err := cgroups.Dir("cpu", "/"); err == nil && !strings.HasPrefix(dir+"/", tree.Dir()+"/") {
			t.Fatalf("%q is outside of %q", dir, tree.Dir())
		}
	})
}

func FuzzParseCPUTimes(f *testing.F) {
	f.Add("cpu  3 3 3 3\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
	f.Add("cpu18446744073709551615 1 2 3 4")
	f.Fuzz(func(t *testing.T, text string) {
		times, err := host.ParseCPUTimes(text)
		for _, time := range times {
			if err != nil || time.CPU < 0 || time.CPU > host.MaxCPU {
				t.Fatalf("%+v, %v", time, err)
			}
		}
	})
}

func FuzzParsePSI(f *testing.F) {
	f.Add("some avg10=1.12 avg60=40.83 avg300=100.00 total=10588457660\nfull avg10=0.07")
	f.Fuzz(func(t *testing.T, text string) {
		psi, err := host.ParsePSI(text)
		for _, avg := range []int32{psi.Some.Avg10, psi.Some.Avg60, psi.Some.Avg300, psi.Full.Avg10} {
			if err == nil && (avg < 0 || avg > 10000) {
				t.Fatalf("%q: %+v", text, psi)
			}
		}
	})
}

func FuzzParseContainerID(f *testing.F) {
	f.Add("containerd://" + container)
	f.Add("cri-o://../../x")
	f.Fuzz(func(t *testing.T, text string) {
		runtime, id, err := host.ParseContainerID(text)
		if err == nil && (runtime+"://"+id != text || len(id) != 64 || filepath.Base(id) != id) {
			t.Fatalf("%q: %q, %q", text, runtime, id)
		}
	})
}

// FuzzContainerGroup: whatever is asked for, nothing but the one container that there is is found.
func FuzzContainerGroup(f *testing.F) {
	f.Add(podUID, container)
	f.Add("", "")
	f.Add("../..", "containerd://"+container)
	tree := hosttest.Lab(f)
	want := tree.Container(hosttest.Kubelet{Runtime: host.Containerd}, hosttest.Burstable, podUID, container)
	f.Fuzz(func(t *testing.T, uid, id string) {
		group, err := tree.Host().ContainerGroup(uid, id)
		if err == nil && (group != want || uid != podUID || !strings.HasSuffix(id, container)) {
			t.Fatalf("%q, %q: %q", uid, id, group)
		}
	})
}

// FuzzDir: no path leads out of a hierarchy.
func FuzzDir(f *testing.F) {
	for _, seed := range []string{"/", "/kubepods/burstable", "/..", "/kubepods/../..", "//", "", "/kubepods/", "/\x00"} {
		f.Add(seed)
	}
	tree := hosttest.Lab(f)
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		f.Fatal(err)
	}
	base := tree.Host().Sys("fs", "cgroup", "cpu")
	f.Fuzz(func(t *testing.T, group string) {
		dir, err := cgroups.Dir("cpu", group)
		if err == nil && dir != base && !strings.HasPrefix(dir, base+"/") {
			t.Fatalf("%q leads to %q", group, dir)
		}
	})
}

func FuzzParseKernelConfig(f *testing.F) {
	f.Add("CONFIG_HZ=250\n# CONFIG_B is not set\nCONFIG_V=\"x")
	f.Fuzz(func(t *testing.T, text string) {
		for name := range host.ParseKernelConfig(text) {
			if !strings.HasPrefix(name, "CONFIG_") {
				t.Fatalf("option %q", name)
			}
		}
	})
}

func FuzzParseCapabilities(f *testing.F) {
	f.Add("CapEff:\t000001fffeffffff\n")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = host.ParseCapabilities(text) })
}

func FuzzParseBTFNames(f *testing.F) {
	f.Add([]byte{0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 'x', 0}, "x")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		if has, err := host.ParseBTFNames(data, name); err == nil && has[name] && !strings.Contains(string(data), name) {
			t.Fatalf("%q is not there", name)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	f.Add("Max locked memory         65536                70000                bytes")
	f.Fuzz(func(t *testing.T, text string) {
		if limit, err := host.ParseLimit(text, "Max locked memory"); err == nil && limit.Unlimited && !strings.Contains(text, "unlimited") {
			t.Fatalf("%q: %v", text, limit)
		}
	})
}

// FuzzMachine has the files that one value or list is read from: none leads to a core that cannot be, or a share that is none.
func FuzzMachine(f *testing.F) {
	files := []string{
		"sys/devices/system/cpu/online", "sys/devices/system/cpu/isolated", "sys/devices/system/cpu/nohz_full",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "sys/devices/system/cpu/cpu0/topology/physical_package_id", "sys/devices/system/node/node0/cpulist",
		"proc/sys/kernel/sched_rt_runtime_us", "proc/sys/kernel/sched_rt_period_us", "sys/kernel/debug/sched/features",
		"sys/kernel/debug/sched/fair_server/cpu0/runtime", "sys/kernel/debug/sched/fair_server/cpu0/period", "proc/cmdline", "proc/self/limits",
	}
	for i := range files {
		for _, seed := range []string{"0-3,7\n", "-1", "950000", "18446744073709551615", "NO_HRTICK HRTICK", "rt_group_sched=0", ""} {
			f.Add(uint8(i), seed)
		}
	}
	tree := hosttest.Lab(f)
	h := tree.Host()
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(tree.Dir(), file)); err != nil {
			tree.Write(file, "0\n")
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		file := files[int(which)%len(files)]
		path := filepath.Join(tree.Dir(), file)
		held, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.WriteFile(path, held, 0o600) }()
		if machine, err := h.Topology(); err == nil {
			for _, core := range machine.Cores {
				if core.ID < 0 || core.ID > host.MaxCPU || core.Sibling > host.MaxCPU {
					t.Fatalf("%s %q: %+v", file, text, core)
				}
			}
		}
		for name, read := range map[string]func() ([]int, error){"isolated": h.Isolated, "without tick": h.NoHzFull} {
			if cpus, err := read(); err == nil && slices.ContainsFunc(cpus, func(id int) bool { return id < 0 || id > host.MaxCPU }) {
				t.Fatalf("%s: %q: %v", name, text, cpus)
			}
		}
		if runtime, period, err := h.RTLimits(); err == nil && (runtime < -1 || period <= 0) {
			t.Fatalf("%s %q: %d of %d us", file, text, runtime, period)
		}
		if ppm, known := h.FairServer(0); known && (ppm < 0 || ppm > 1_000_000) {
			t.Fatalf("%s %q: the fair server has %d ppm", file, text, ppm)
		}
		_, _ = h.SchedFeatures()
		_, _ = h.Cmdline()
		_, _ = h.MemlockLimit()
		_, _ = h.RTGroupSched()
	})
}
