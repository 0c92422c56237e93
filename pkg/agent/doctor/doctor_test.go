package doctor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/doctor"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var errDenied = errors.New("loading programs: the process lacks CAP_BPF and CAP_PERFMON")

// examine asks for a report as the command does, with programs that load but at machines without rights.
func examine(t *testing.T, tree *hosttest.Tree, o doctor.Options) doctor.Report {
	t.Helper()
	o.Host = tree.Host()
	report, err := doctor.Examine(o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func loads([]int) (doctor.Programs, error) {
	return doctor.Programs{Hook: "tp_btf/sched_switch + bpf_timer", Fentry: errors.New("loading a program at the entry of update_curr_dl: not permitted")}, nil
}

func refused([]int) (doctor.Programs, error) { return doctor.Programs{}, errDenied }

func isDenied(err error) bool { return errors.Is(err, errDenied) }

// The four machines, whole, as text and as JSON.
func TestMachines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tree     *hosttest.Tree
		options  doctor.Options
		backend  string
		problems bool
	}{
		"lab":          {tree: hosttest.Lab(t), options: doctor.Options{Programs: loads}, backend: "rtgroup"},
		"distribution": {tree: hosttest.Distribution(t), options: doctor.Options{Programs: loads, Reserved: "0,2"}, backend: "fifo"},
		"blocked":      {tree: hosttest.Blocked(t), options: doctor.Options{Programs: refused, Denied: isDenied}, backend: "deadline", problems: true},
		"edge":         {tree: hosttest.Edge(t), options: doctor.Options{Programs: loads, Cores: "4-7"}, backend: "fifo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := examine(t, c.tree, c.options)
			if report.Backend != c.backend || report.Problems() != c.problems {
				t.Errorf("backend %s, %v", report.Backend, report.Counts)
			}
			var text, wire bytes.Buffer
			if err := errors.Join(report.Text(&text), report.JSON(&wire)); err != nil {
				t.Fatal(err)
			}
			for _, b := range []*bytes.Buffer{&text, &wire} {
				if strings.Contains(b.String(), c.tree.Dir()) {
					t.Errorf("a path of the directory that the machine is below:\n%s", b)
				}
			}
			golden(t, name+".txt", text.Bytes())
			golden(t, name+".json", wire.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil { //nolint:gosec // a file of the source
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look at it with -update and git diff:\n%s", name, got)
	}
}

// find is the finding of a check.
func find(t *testing.T, r doctor.Report, name string) doctor.Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no finding %q", name)
	}
	return r.Findings[i]
}

// Each case changes one thing of a machine, and says what comes of it.
func TestChecks(t *testing.T) {
	t.Parallel()
	type change func(*hosttest.Tree)
	write := func(path, text string) change { return func(tr *hosttest.Tree) { tr.Write(path, text) } }
	remove := func(path string) change { return func(tr *hosttest.Tree) { tr.Remove(path) } }
	process := func(pid, name, capabilities string) change {
		return func(tr *hosttest.Tree) {
			tr.Write("proc/"+pid+"/comm", name+"\n")
			tr.Write("proc/"+pid+"/status", "Name:\t"+name+"\nCapEff:\t"+capabilities+"\n")
		}
	}
	for _, c := range []struct {
		machine  func(testing.TB) *hosttest.Tree
		change   change
		check    string
		severity doctor.Severity
		says     string
	}{
		{hosttest.Edge, remove("proc/sys/kernel/osrelease"), "kernel", doctor.Problem, "--root"},
		{hosttest.Edge, remove("sys/kernel/realtime"), "preempt-rt", doctor.Note, "ktimers"},
		{hosttest.Edge, remove("proc/1/mountinfo"), "control-groups", doctor.OK, ""},
		{hosttest.Edge, func(tr *hosttest.Tree) { tr.Remove("proc/1/mountinfo"); tr.Remove("proc/self/mountinfo") }, "control-groups", doctor.Problem, "mount the cgroup"},
		{hosttest.Edge, write("sys/fs/cgroup/cgroup.controllers", "cpu memory"), "control-groups", doctor.Problem, "controller cpuset"},
		{hosttest.Edge, remove("sys/fs/cgroup/cgroup.procs"), "group-access", doctor.Problem, "cannot be set"},
		{hosttest.Edge, func(tr *hosttest.Tree) { tr.Remove("proc/1/mountinfo"); tr.Remove("proc/self/mountinfo") }, "group-access", doctor.Problem, "no groups"},
		{hosttest.Edge, remove("proc/config.gz"), "rt-group-sched", doctor.Warning, "cannot be read"},
		{hosttest.Edge, remove("proc/config.gz"), "tick", doctor.Note, "budgetGranularityUs"},
		{hosttest.Lab, nil, "granularity", doctor.Warning, "budgetGranularity=5ms"},
		{hosttest.Lab, func(tr *hosttest.Tree) { tr.Config("CONFIG_HZ=1000", "CONFIG_RT_GROUP_SCHED=y") }, "granularity", doctor.Warning, "budgetGranularity=2ms"},
		{hosttest.Lab, remove("proc/config.gz"), "granularity", doctor.Note, "measured when the agent starts"},
		{hosttest.Edge, nil, "granularity", doctor.OK, "timer of its own"},
		{hosttest.Blocked, remove("proc/config.gz"), "granularity", doctor.OK, "fifo"},
		{hosttest.Blocked, func(tr *hosttest.Tree) { tr.Config("CONFIG_RT_GROUP_SCHED=y") }, "granularity", doctor.Note, "measured when the agent starts"},
		{hosttest.Blocked, func(tr *hosttest.Tree) { tr.Config("CONFIG_HZ=250", "CONFIG_RT_GROUP_SCHED=y") }, "granularity", doctor.Warning, "4ms late"},
		{hosttest.Blocked, func(tr *hosttest.Tree) {
			tr.Config("CONFIG_RT_GROUP_SCHED=y", "# CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED is not set")
			tr.Write("proc/cmdline", "rt_group_sched=0")
		}, "rt-group-sched", doctor.OK, "fifo"},
		{hosttest.Blocked, write("proc/cmdline", "rt_group_sched=0"), "rt-group-sched", doctor.Problem, "EPERM"},
		{hosttest.Blocked, write("proc/sys/kernel/sched_rt_runtime_us", "-1"), "rt-group-sched", doctor.Warning, "net"},
		{hosttest.Blocked, write("proc/sys/kernel/sched_rt_runtime_us", "-1"), "rt-limit", doctor.Warning, "no net"},
		{hosttest.Blocked, write("sys/fs/cgroup/cpu.rt.max", "900000 1000000"), "rt-group-sched", doctor.OK, "HCBS"},
		{hosttest.Blocked, write("sys/fs/cgroup/cpu.rt.max", "0 1000000"), "rt-group-sched", doctor.Note, "echo 900000 1000000"},
		{hosttest.Blocked, write("sys/fs/cgroup/kubepods.slice/cpu.rt.max", "max 100000"), "kubepods-budget", doctor.OK, "every level"},
		{hosttest.Blocked, write("sys/fs/cgroup/kubepods.slice/cpu.rt.max", "0 100000"), "kubepods-budget", doctor.Note, "EPERM"},
		{hosttest.Blocked, write("sys/fs/cgroup/kubepods.slice/cpu.rt_multi_runtime_us", "0 0 0 0"), "rt-group-sched", doctor.OK, "HCBS"},
		{hosttest.Lab, write("sys/fs/cgroup/cpu/kubepods/cpu.rt_multi_runtime_us", "0 0 0 0"), "rt-group-sched", doctor.OK, "HCBS"},
		{hosttest.Lab, write("sys/fs/cgroup/cpu/kubepods/cpu.rt_multi_runtime_us", "0 0 0 0"), "kubepods-budget", doctor.Note, "until the agent gives"},
		{hosttest.Lab, func(tr *hosttest.Tree) {
			for _, level := range []string{"", "burstable/", "besteffort/"} {
				tr.Write("sys/fs/cgroup/cpu/kubepods/"+level+"cpu.rt_multi_runtime_us", "400000 0 0 0")
			}
		}, "kubepods-budget", doctor.OK, "every level"},
		{hosttest.Lab, nil, "kubepods-budget", doctor.Note, "until the agent gives"},
		{hosttest.Lab, remove("sys/fs/cgroup/cpu/kubepods"), "kubepods-budget", doctor.Note, "no groups"},
		{hosttest.Lab, func(tr *hosttest.Tree) {
			for _, level := range []string{"", "burstable/", "besteffort/"} {
				tr.Write("sys/fs/cgroup/cpu/kubepods/"+level+"cpu.rt_runtime_us", "400000")
			}
		}, "kubepods-budget", doctor.OK, "every level"},
		{hosttest.Lab, write("sys/devices/system/cpu/nohz_full", "1"), "tick-stop", doctor.Warning, "cores 1"},
		{hosttest.Lab, write("proc/sys/kernel/sched_rt_runtime_us", "500000"), "rt-limit", doctor.Warning, "50 %"},
		{hosttest.Lab, write("proc/sys/kernel/sched_rt_runtime_us", "500000"), "capacity", doctor.Note, "45 %"},
		{hosttest.Lab, write("proc/sys/kernel/sched_rt_period_us", "0"), "rt-limit", doctor.Problem, "no sense"},
		{hosttest.Lab, write("proc/sys/kernel/sched_rt_period_us", "0"), "capacity", doctor.Problem, "rt-limit"},
		{hosttest.Lab, write("proc/pressure/cpu", "nonsense"), "pressure", doctor.Warning, "nonsense"},
		{hosttest.Lab, write("sys/devices/system/cpu/isolated", "1"), "isolation", doctor.Note, "--cores 1"},
		{hosttest.Lab, write("proc/irq/24/effective_affinity_list", "0"), "interrupts", doctor.OK, "none of 1"},
		{hosttest.Lab, write("proc/irq/24/effective_affinity_list", ""), "interrupts", doctor.Warning, "1 of 1"},
		{hosttest.Lab, remove("proc/irq/24/virtio0"), "interrupts", doctor.OK, "none"},
		{hosttest.Lab, remove("sys/kernel/btf/vmlinux"), "btf", doctor.Problem, "CONFIG_DEBUG_INFO_BTF"},
		{hosttest.Lab, remove("sys/kernel/btf/vmlinux"), "tracepoints", doctor.Problem, "btf"},
		{hosttest.Lab, func(tr *hosttest.Tree) { tr.BTF("other") }, "tracepoints", doctor.Problem, "context switches"},
		{hosttest.Lab, write("sys/kernel/security/lockdown", "none integrity [confidentiality]"), "lockdown", doctor.Problem, "memory"},
		{hosttest.Blocked, nil, "kubepods-budget", doctor.Note, "rt-group-sched"},
		{hosttest.Lab, remove("sys/devices/system/cpu/cpu1/cpuidle"), "idle-states", doctor.OK, "no deep state"},
		{hosttest.Lab, nil, "programs", doctor.Note, "not tried"},
		{hosttest.Lab, write("proc/self/status", "CapEff:\t0000000000000000"), "cap-bpf", doctor.Problem, "has not CAP_BPF"},
		{hosttest.Lab, write("proc/self/status", "CapEff:\t0000000000200000"), "cap-perfmon", doctor.OK, "CAP_SYS_ADMIN, which stands"},
		{hosttest.Lab, write("proc/self/status", "CapEff:\t0000000000200000"), "cap-sys-nice", doctor.Problem, "ordinary task"},
		{hosttest.Lab, remove("proc/self/status"), "cap-ipc-lock", doctor.Warning, "CAP_IPC_LOCK"},
		{hosttest.Lab, remove("proc/self/limits"), "memlock", doctor.Note, "cannot be read"},
		{hosttest.Lab, remove("var/run/nri"), "nri", doctor.Warning, "disable = false"},
		{hosttest.Lab, remove("run"), "runtime", doctor.Note, "standalone"},
		{hosttest.Lab, process("71", "containerd", "000001ffffffffff"), "checkpoint", doctor.OK, "all processes"},
		{hosttest.Lab, process("71", "containerd", "000001fffeffffff"), "checkpoint", doctor.Warning, "its dump fails"},
		{hosttest.Lab, process("71", "containerd", "many"), "checkpoint", doctor.Note, "cannot be read"},
		{hosttest.Lab, process("71", "containerd-shim", "000001ffffffffff"), "checkpoint", doctor.Note, "no containerd"},
		{hosttest.Lab, write("var/lib/kubelet/cpu_manager_state", `{"policyName":"static"}`), "cpu-manager", doctor.Warning, "policy static"},
		{hosttest.Lab, write("var/lib/kubelet/cpu_manager_state", `{"policyName":"none"}`), "cpu-manager", doctor.OK, "alone"},
		{hosttest.Lab, write("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration"), "cpu-manager", doctor.OK, "alone"},
		{hosttest.Lab, write("var/lib/kubelet/config.yaml", "a: b: c"), "cpu-manager", doctor.Warning, "unreadable"},
		{hosttest.Lab, remove("var/lib/kubelet"), "cpu-manager", doctor.Note, "must have policy none"},
		{hosttest.Distribution, write("sys/kernel/debug/sched/fair_server/cpu2/runtime", "100000000"), "fair-server", doctor.OK, ""},
		{hosttest.Distribution, remove("sys/kernel/debug/sched/fair_server"), "fair-server", doctor.Note, "no such server"},
		{hosttest.Distribution, write("sys/kernel/debug/sched/fair_server/cpu3/runtime", "0"), "fair-server", doctor.Warning, "0 % to 5 %"},
		{hosttest.Distribution, write("sys/fs/cgroup/kubepods.slice/cpuset.cpus.partition", "isolated"), "isolation", doctor.Note, "cores 1-2 too"},
	} {
		t.Run(c.check+" "+c.says, func(t *testing.T) {
			t.Parallel()
			tree := c.machine(t)
			if c.change != nil {
				c.change(tree)
			}
			if c.check == "isolation" {
				tree.Write("sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective", "3")
			}
			f := find(t, examine(t, tree, doctor.Options{}), c.check)
			if f.Severity != c.severity || !strings.Contains(f.Means+" "+f.Mend+" "+reading(f), c.says) {
				t.Errorf("got %+v, want %s with %q", f, c.severity, c.says)
			}
		})
	}
}

func reading(f doctor.Finding) string {
	var all []string
	for _, r := range f.Read {
		all = append(all, r.Where+" = "+r.What)
	}
	return strings.Join(all, "\n")
}

// Nothing stops the other checks, whatever is missing.
func TestAMachineWithNothingButCPUs(t *testing.T) {
	t.Parallel()
	tree := hosttest.New(t)
	tree.CPUs(hosttest.CPU{ID: 0})
	report := examine(t, tree, doctor.Options{Programs: func([]int) (doctor.Programs, error) { return doctor.Programs{}, errors.New("no such syscall") }})
	if len(report.Findings) != len(doctor.Names()) || !report.Problems() {
		t.Errorf("got %+v", report)
	}
	if f := find(t, report, "cpus"); f.Severity != doctor.Problem {
		t.Errorf("one CPU: %+v", f)
	}
	if f := find(t, report, "programs"); f.Severity != doctor.Problem || !strings.Contains(reading(f), "no such syscall") {
		t.Errorf("got %+v", f)
	}
	if _, err := doctor.Examine(doctor.Options{Host: hosttest.New(t).Host()}); err == nil {
		t.Error("a directory is no machine")
	}
	if _, err := doctor.Examine(doctor.Options{Host: hosttest.Lab(t).Host(), Cores: "7"}); err == nil || !strings.Contains(err.Error(), "--cores") {
		t.Errorf("got %v", err)
	}
}

// Every finding says what it means, where that was read, and, unless all is well, what to do or that there is
// nothing to do.
func TestFindingsAreWhole(t *testing.T) {
	t.Parallel()
	for _, machine := range []func(testing.TB) *hosttest.Tree{hosttest.Lab, hosttest.Distribution, hosttest.Blocked, hosttest.Edge} {
		for _, f := range examine(t, machine(t), doctor.Options{}).Findings {
			if f.Means == "" || len(f.Read) == 0 {
				t.Errorf("%+v", f)
			}
			if (f.Severity == doctor.Warning || f.Severity == doctor.Problem) && f.Mend == "" {
				t.Errorf("how to mend it? %+v", f)
			}
		}
	}
}

func TestJSONIsWholeAndStable(t *testing.T) {
	t.Parallel()
	report := examine(t, hosttest.Blocked(t), doctor.Options{})
	var wire bytes.Buffer
	if err := report.JSON(&wire); err != nil {
		t.Fatal(err)
	}
	var back doctor.Report
	if err := json.Unmarshal(wire.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := back.JSON(&again); err != nil || wire.String() != again.String() {
		t.Errorf("%v\n%s", err, again.String())
	}
}

// The page lists every check.
func TestEveryCheckIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range doctor.Names() {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/doctor.md has no row of check %s", name)
		}
	}
}

// The machine that the test runs on.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	report, err := doctor.Examine(doctor.Options{Host: host.New("/")})
	if err != nil {
		t.Fatal(err)
	}
	if report.Kernel == "" || report.Backend == "" || len(report.Findings) != len(doctor.Names()) {
		t.Errorf("got %+v", report)
	}
}
