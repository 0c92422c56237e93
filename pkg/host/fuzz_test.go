package host_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
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
		if len(cpus) > 0 && (cpus[0] < 0 || cpus[len(cpus)-1] > host.MaxCPU) {
			t.Fatalf("%q has CPU %d or %d", text, cpus[0], cpus[len(cpus)-1])
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

// FuzzMountPoint: a mount is where the kernel says that it is, whatever its directory is called.
func FuzzMountPoint(f *testing.F) {
	for _, seed := range []string{"sys/fs/cgroup", "a b\tc\nd\\e", `\040`, "sys/fs/cgroup\u00a0x", "a\rb\vc", "\u3000", " - "} {
		f.Add(seed, seed)
	}
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`) // as show_mountinfo of the kernel does
	f.Fuzz(func(t *testing.T, root, point string) {
		root, point = "/"+root, "/"+point
		mounts, err := host.ParseMountInfo("36 35 98:0 " + escaped.Replace(root) + " " + escaped.Replace(point) + " rw,noatime master:1 - cgroup  rw,cpu\n")
		want := host.Mount{ID: 36, Parent: 35, Root: root, Point: point, Type: "cgroup", SuperOptions: []string{"rw", "cpu"}}
		if err != nil || len(mounts) != 1 || !reflect.DeepEqual(mounts[0], want) {
			t.Fatalf("%+v, %v; want %+v", mounts, err, want)
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
	f.Add("cpu1 1 2 3 4\ncpu1 1 2 3 4\ncpu0 1 2 3 4")
	f.Fuzz(func(t *testing.T, text string) {
		times, err := host.ParseCPUTimes(text)
		last := -1
		for _, time := range times {
			if err != nil || time.CPU <= last || time.CPU > host.MaxCPU {
				t.Fatalf("%+v after CPU %d, %v", time, last, err)
			}
			last = time.CPU
		}
	})
}

// write a file of a machine that was made for all of a fuzz test.
func write(t *testing.T, tree *hosttest.Tree, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(tree.Dir(), file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzMemory: a group's memory is a number of bytes.
func FuzzMemory(f *testing.F) {
	for _, seed := range []string{"8192\n", "max", "-1", "9223372036854775808", "1_0", ""} {
		f.Add(seed)
	}
	tree := hosttest.Lab(f)
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		write(t, tree, "sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes", text)
		bytes, err := cgroups.Memory("/kubepods")
		if err == nil && (bytes < 0 || strings.TrimLeft(strings.TrimSpace(text), "0") != strings.TrimLeft(strconv.FormatInt(bytes, 10), "0")) {
			t.Fatalf("%q is %d bytes", text, bytes)
		}
		if err != nil && !strings.Contains(err.Error(), strconv.Quote(strings.TrimSpace(text))) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// FuzzBandwidth: what the kernel keeps for ordinary tasks, and what it leaves real-time ones, is a part of a core, whatever its files say.
func FuzzBandwidth(f *testing.F) {
	f.Add("50000000", "1000000000")
	f.Add("950000", "1000000")
	f.Add("-1", "1000000")
	f.Add("50000000", "9223372036854775807")
	f.Add("9223372036854775807", "9223372036854775807")
	f.Add("9223372036855", "18446744073709") // in millionths it wraps around
	tree := hosttest.Distribution(f)
	h := tree.Host()
	f.Fuzz(func(t *testing.T, runtime, period string) {
		for file, text := range map[string]string{
			"sys/kernel/debug/sched/fair_server/cpu0/runtime": runtime, "sys/kernel/debug/sched/fair_server/cpu0/period": period,
			"proc/sys/kernel/sched_rt_runtime_us": runtime, "proc/sys/kernel/sched_rt_period_us": period,
		} {
			write(t, tree, file, text)
		}
		number := func(text string) float64 {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatalf("%q was taken for a number", text)
			}
			return float64(n)
		}
		if ppm, known := h.FairServer(0); known {
			if want := 1e6 * number(runtime) / number(period); ppm < 0 || ppm > 1_000_000 || float64(ppm) < want-1 || float64(ppm) > want+1 {
				t.Fatalf("%q of %q: the fair server has %d ppm; want %g", runtime, period, ppm, want)
			}
		}
		if runtimeUs, periodUs, err := h.RTLimits(); err == nil {
			if ppm := runtimeUs * 1_000_000 / periodUs; runtimeUs >= 0 && (ppm < 0 || ppm > 1_000_000) || number(runtime) != float64(runtimeUs) || number(period) != float64(periodUs) {
				t.Fatalf("%q of %q: real-time tasks have %d of %d us", runtime, period, runtimeUs, periodUs)
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
	f.Add("CapEff:\t000001fffeffffff\n", uint64(0x1fffeffffff))
	f.Add("CapEff: x", uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, text string, set uint64) {
		if got, err := host.ParseCapabilities(text); err == nil && !strings.Contains(strings.ToLower(text), strconv.FormatUint(uint64(got), 16)) {
			t.Fatalf("%q is %x", text, got)
		}
		if got, err := host.ParseCapabilities(fmt.Sprintf("CapPrm:\t0\nCapEff:\t%016x\nCapBnd:\t0\n", set)); err != nil || uint64(got) != set {
			t.Fatalf("%x is %x, %v", set, got, err)
		}
	})
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
	f.Add("Max locked memory         unlimited            unlimited            bytes")
	f.Fuzz(func(t *testing.T, text string) {
		limit, err := host.ParseLimit(text, "Max locked memory")
		if says, _, _ := strings.Cut(limit.String(), " "); err == nil && !strings.Contains(text, says) {
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
