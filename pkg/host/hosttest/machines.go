package hosttest

import (
	"fmt"
	"strings"
	"testing"
)

// v1Controllers are those of the laboratory's machine.
var v1Controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids"}

// Lab is a small virtual machine: 2 CPUs, v1 controllers beside a v2 hierarchy without any, RT groups, a tick
// of 250 Hz, no debugfs.
func Lab(t testing.TB) *Tree {
	t.Helper()
	tr := New(t)
	tr.CPUs(CPU{ID: 0}, CPU{ID: 1})
	tr.CgroupsHybrid(true, v1Controllers...)
	tr.kernel("6.18.44", "#1 SMP PREEMPT_DYNAMIC", "console=ttyS0 quiet psi=1")
	tr.Config("CONFIG_HZ=250", "CONFIG_RT_GROUP_SCHED=y", "CONFIG_PREEMPT_DYNAMIC=y", "CONFIG_DEBUG_INFO_BTF=y", "CONFIG_PSI=y",
		"CONFIG_SCHED_HRTICK=y", "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y", "# CONFIG_PREEMPT_RT is not set", "# CONFIG_SCHED_CLASS_EXT is not set", "# CONFIG_KPROBES is not set")
	tr.common("000001fffeffffff")
	tr.BTF("sched_switch", "btf_trace_sched_switch", "update_curr_dl_se")
	tr.idle([]int{0, 1}, "haltpoll", IdleState{Name: "POLL"}, IdleState{Name: "haltpoll", LatencyUs: 1})
	tr.Write("sys/devices/system/cpu/smt/control", "notsupported")
	tr.Write("sys/devices/system/cpu/smt/active", "0")
	tr.IRQ(24, "virtio0", "0-1")
	tr.Group("/kubepods/burstable")
	tr.Group("/kubepods/besteffort")
	tr.containerd("containerd")
	tr.KubeletConfig("cgroupDriver: cgroupfs\ncpuManagerPolicy: none")
	return tr
}

// Distribution is a server with a distribution's kernel: 4 CPUs with 2 threads a core, control groups v2 under
// systemd, no RT groups, debugfs readable, HRTICK built in and off.
func Distribution(t testing.TB) *Tree {
	t.Helper()
	tr := New(t)
	tr.CPUs(CPU{ID: 0, Siblings: "0,2"}, CPU{ID: 1, Siblings: "1,3"}, CPU{ID: 2, Siblings: "0,2"}, CPU{ID: 3, Siblings: "1,3"})
	tr.CgroupsV2(NoRTFiles, "cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc")
	tr.kernel("6.12.48-amd64", "#1 SMP PREEMPT_DYNAMIC Distribution 6.12.48-1", "BOOT_IMAGE=/boot/vmlinuz-6.12.48-amd64 root=/dev/sda1 ro quiet")
	tr.Write("boot/config-6.12.48-amd64", strings.Join([]string{"CONFIG_HZ=250", "# CONFIG_RT_GROUP_SCHED is not set",
		"CONFIG_PREEMPT_DYNAMIC=y", "CONFIG_DEBUG_INFO_BTF=y", "CONFIG_PSI=y", "CONFIG_SCHED_HRTICK=y", "CONFIG_SCHED_CLASS_EXT=y", "CONFIG_KPROBES=y", "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y"}, "\n"))
	tr.common("000001ffffffffff")
	tr.debugfs("NO_HRTICK NO_HRTICK_DL", 50_000_000, 0, 4)
	tr.BTF("btf_trace_sched_switch", "update_curr_dl_se")
	tr.Write("sys/kernel/security/lockdown", "[none] integrity confidentiality")
	tr.Write("sys/devices/system/cpu/smt/control", "on")
	tr.Write("sys/devices/system/cpu/smt/active", "1")
	tr.frequency([]int{0, 1, 2, 3}, "schedutil")
	tr.idle([]int{0, 1, 2, 3}, "intel_idle", IdleState{Name: "POLL"}, IdleState{Name: "C1", LatencyUs: 2}, IdleState{Name: "C6", LatencyUs: 170})
	tr.IRQ(31, "eth0", "0-3")
	tr.Group("/kubepods.slice/kubepods-burstable.slice")
	tr.Group("/kubepods.slice/kubepods-besteffort.slice")
	tr.Group("/system.slice/containerd.service")
	tr.containerd("containerd")
	tr.KubeletConfig("cgroupDriver: systemd\ncpuManagerPolicy: static")
	return tr
}

// Blocked is a server on which no container may run a real-time task: control groups v2, and RT groups in a
// kernel that cannot give them a budget there. It is locked down, and runs CRI-O.
func Blocked(t testing.TB) *Tree {
	t.Helper()
	tr := New(t)
	tr.CPUs(CPU{ID: 0}, CPU{ID: 1}, CPU{ID: 2}, CPU{ID: 3})
	tr.CgroupsV2(NoRTFiles, "cpuset", "cpu", "io", "memory", "pids")
	tr.kernel("6.6.30-flat", "#1 SMP PREEMPT_DYNAMIC", "root=/dev/sda ro")
	tr.Config("CONFIG_HZ=1000", "CONFIG_RT_GROUP_SCHED=y", "CONFIG_DEBUG_INFO_BTF=y", "# CONFIG_PSI is not set", "# CONFIG_SCHED_HRTICK is not set")
	tr.common("0000000000000000")
	tr.BTF("btf_trace_sched_switch")
	tr.Remove("proc/pressure")
	tr.Write("sys/kernel/security/lockdown", "none [integrity] confidentiality")
	tr.Write("sys/devices/system/cpu/smt/active", "0")
	tr.Write("proc/self/limits", limits("65536", "0"))
	tr.IRQ(31, "eth0", "0-3")
	tr.Group("/kubepods.slice/kubepods-burstable.slice")
	tr.Mkdir("run/crio")
	tr.Write("run/crio/crio.sock", "")
	return tr
}

// Edge is a controller at the edge with a real-time kernel: 8 CPUs on 2 nodes, one offline, 4 of them
// isolated with their tick and interrupts kept off, frequency and sleep states fixed.
func Edge(t testing.TB) *Tree {
	t.Helper()
	tr := New(t)
	cpus := make([]CPU, 8)
	for i := range cpus {
		cpus[i] = CPU{ID: i, NUMA: i / 4, Package: i / 4}
	}
	cpus[1].Offline = true
	tr.CPUs(cpus...)
	tr.CgroupsV2(NoRTFiles, "cpuset", "cpu", "io", "memory", "pids")
	tr.kernel("7.1.3-rt1", "#1 SMP PREEMPT_RT Edge", "root=/dev/mmcblk0p2 isolcpus=domain,managed_irq,4-7 nohz_full=4-7 rcu_nocbs=4-7 irqaffinity=0,2-3 skew_tick=1")
	tr.Config("CONFIG_HZ=1000", "# CONFIG_RT_GROUP_SCHED is not set", "CONFIG_PREEMPT_RT=y", "CONFIG_DEBUG_INFO_BTF=y", "CONFIG_PSI=y",
		"CONFIG_SCHED_HRTICK=y", "CONFIG_NO_HZ_FULL=y", "CONFIG_SCHED_CLASS_EXT=y")
	tr.common("000001ffffffffff")
	tr.debugfs("HRTICK HRTICK_DL", 50_000_000, 50_000_000, 8)
	tr.BTF("btf_trace_sched_switch", "btf_trace_sched_dl_throttle_tp", "update_curr_dl_se")
	tr.Write("sys/kernel/security/lockdown", "[none] integrity confidentiality")
	tr.Write("sys/kernel/realtime", "1")
	tr.Write("sys/devices/system/cpu/isolated", "4-7")
	tr.Write("sys/devices/system/cpu/nohz_full", "4-7")
	tr.Write("sys/devices/system/cpu/smt/control", "off")
	tr.Write("sys/devices/system/cpu/smt/active", "0")
	tr.frequency([]int{0, 2, 3, 4, 5, 6, 7}, "performance")
	tr.idle([]int{0, 2, 3, 4, 5, 6, 7}, "intel_idle", IdleState{Name: "POLL"}, IdleState{Name: "C1", LatencyUs: 2}, IdleState{Name: "C6", LatencyUs: 170, Disabled: true})
	tr.IRQ(40, "eth0-rx", "0,2-3")
	tr.Group("/kubepods.slice/kubepods-burstable.slice")
	tr.containerd("containerd")
	tr.KubeletConfig("cgroupDriver: systemd\ncpuManagerPolicy: none\nreservedSystemCPUs: 0,2-3")
	return tr
}

// kernel says which one it is.
func (tr *Tree) kernel(release, version, cmdline string) {
	tr.Write("proc/sys/kernel/osrelease", release)
	tr.Write("proc/sys/kernel/version", version)
	tr.Write("proc/cmdline", cmdline)
}

// common is what all machines have: the kernel's net for real-time tasks, pressure, a process's rights.
func (tr *Tree) common(capabilities string) {
	tr.Write("proc/sys/kernel/sched_rt_runtime_us", "950000")
	tr.Write("proc/sys/kernel/sched_rt_period_us", "1000000")
	for _, resource := range []string{"cpu", "memory", "io"} {
		tr.Write("proc/pressure/"+resource, "some avg10=1.25 avg60=0.50 avg300=0.10 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0")
	}
	tr.Write("proc/self/status", "Name:\tmainspring\nCapInh:\t0000000000000000\nCapEff:\t"+capabilities)
	tr.Write("proc/self/limits", limits("unlimited", "95"))
	tr.Write("proc/irq/default_smp_affinity", "f")
	tr.Write("sys/kernel/cgroup/features", "nsdelegate")
}

func limits(memlock, priority string) string {
	return fmt.Sprintf("%-26s%-21s%-21s%s\n%-26s%-21s%-21s%s\n%-26s%-21s%-21s", "Limit", "Soft Limit", "Hard Limit", "Units",
		"Max locked memory", memlock, memlock, "bytes", "Max realtime priority", priority, priority)
}

// debugfs makes it readable, with the scheduler's features and the runtimes of its servers of each second.
func (tr *Tree) debugfs(features string, fairNs, extNs int64, cpus int) {
	tr.Write("sys/kernel/debug/sched/features", "PLACE_LAG "+features)
	for cpu := range cpus {
		for server, runtime := range map[string]int64{"fair_server": fairNs, "ext_server": extNs} {
			if runtime > 0 {
				dir := fmt.Sprintf("sys/kernel/debug/sched/%s/cpu%d/", server, cpu)
				tr.Write(dir+"runtime", fmt.Sprint(runtime))
				tr.Write(dir+"period", "1000000000")
			}
		}
	}
}

// IRQ adds an interrupt whose handler may run on those CPUs.
func (tr *Tree) IRQ(number int, name, cpus string) {
	tr.t.Helper()
	dir := fmt.Sprintf("proc/irq/%d/", number)
	tr.Write(dir+"smp_affinity_list", cpus)
	tr.Write(dir+"effective_affinity_list", cpus)
	tr.Mkdir(dir + name)
}

// IdleState is one in which a CPU sleeps.
type IdleState struct {
	Name      string
	LatencyUs int
	Disabled  bool
}

func (tr *Tree) idle(cpus []int, driver string, states ...IdleState) {
	tr.Write("sys/devices/system/cpu/cpuidle/current_driver", driver)
	for _, cpu := range cpus {
		for i, s := range states {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpuidle/state%d/", cpu, i)
			disabled := "0"
			if s.Disabled {
				disabled = "1"
			}
			tr.Write(dir+"name", s.Name)
			tr.Write(dir+"latency", fmt.Sprint(s.LatencyUs))
			tr.Write(dir+"disable", disabled)
		}
	}
}

func (tr *Tree) frequency(cpus []int, governor string) {
	for _, cpu := range cpus {
		tr.Write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu), governor)
	}
}

func (tr *Tree) containerd(name string) {
	tr.Write("run/"+name+"/"+name+".sock", "")
	tr.Write("var/run/nri/nri.sock", "")
}

// KubeletConfig gives the kubelet its file of settings, without the header.
func (tr *Tree) KubeletConfig(lines string) {
	tr.t.Helper()
	tr.Write("var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+lines)
}
