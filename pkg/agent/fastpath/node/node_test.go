package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// patience is how long a test waits for what should take a moment, on a machine that may do other things.
const patience = time.Minute

// fastpath returns the program.
func fastpath(t *testing.T) string {
	t.Helper()
	program, err := programs.Path(t.Context(), t.TempDir(), programs.FastPath)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// task builds the real-time task of the benchmarks.
func task(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "task")
	if err := image.BuildProgram(t.Context(), toolchain.MainModule+"/test/bench/task", program); err != nil {
		t.Fatal(err)
	}
	return program
}

// process is a fast path on the real machine.
type process struct {
	t                      *testing.T
	program, socket, state string
	args                   []string
	command                *exec.Cmd
	log                    bytes.Buffer
	*client.Client
}

func newProcess(t *testing.T, backend string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{
		t: t, program: fastpath(t), socket: filepath.Join(dir, "s"), state: filepath.Join(dir, "state"),
		args: []string{"--backend", backend, "--charge-granularity", "100us"},
	}
	p.Client = client.New(p.socket)
	return p
}

func (p *process) flags() []string {
	return append([]string{"--socket", p.socket, "--state-dir", p.state}, p.args...)
}

// begin starts the process and waits until it answers.
func (p *process) begin() {
	p.t.Helper()
	p.start(exec.CommandContext(p.t.Context(), p.program, p.flags()...))
}

func (p *process) start(command *exec.Cmd) {
	p.t.Helper()
	p.log.Reset()
	p.command = command
	p.command.WaitDelay = patience // for who else has its output
	p.command.Stdout, p.command.Stderr = &p.log, &p.log
	if err := p.command.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.command.Process.Kill(); _ = p.command.Wait() })
	p.eventually("the fast path to answer", func() error { _, err := p.Report(p.t.Context()); return err })
}

// kill ends the process between any two of its instructions.
func (p *process) kill() {
	p.t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.command.Wait()
}

func (p *process) eventually(what string, check func() error) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			_ = p.command.Process.Signal(unix.SIGQUIT) // it says where it hangs
			_ = p.command.Wait()
			p.t.Fatalf("waited for %s: %v\n%s", what, err, p.log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// container is a group with a FIFO thread that asks for more than its low budget now and then.
type container struct {
	group string
	local *actuator.Local
	task  *exec.Cmd
}

func newContainer(t *testing.T, task, identity, name string, core int) *container {
	t.Helper()
	local, err := actuator.NewLocal(host.New("/"), identity)
	if err != nil {
		t.Fatal(err)
	}
	c := &container{group: fmt.Sprintf("/mainspring-test-%d/%s", os.Getpid(), name), local: local}
	if err := local.Make(c.group); err != nil {
		t.Fatal(err)
	}
	c.task = exec.CommandContext(t.Context(), task, "-name", name, "-period", "10ms", "-work", "1200us", "-overrun", "0.3",
		"-overrun-least", "2500us", "-overrun-most", "3500us", "-duration", "120s", "-policy", "other", "-core", strconv.Itoa(core))
	if err := c.task.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := local.Join(c.group, c.task.Process.Pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.task.Process.Kill()
		_ = c.task.Wait()
		var err error
		for range 200 { // a group is busy until its last thread is reaped
			if err = local.Remove(c.group); err == nil {
				_ = local.Remove(path.Dir(c.group)) // another container may still be in it
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("removing %s: %v", c.group, err)
	})
	return c
}

// realtime gives every thread of the container the policy that an RT container has.
func (c *container) realtime(t *testing.T) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.task.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatalf("making thread %d real-time: %v", tid, err)
		}
	}
}

func (c *container) file(t *testing.T, controller, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, c.group, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (c *container) server(id string, least int64, core int) table.Server {
	return table.Server{
		ID: id, Cgroup: c.group, Criticality: "High", PeriodUs: 10_000, DeadlineUs: 10_000, LowUs: 2_000, HighUs: 4_000, LevelsUs: []int64{3_000},
		LeastUs: least, Core: core, Mode: table.Elastic, Overruns: 1, Periods: 1, DwellUs: 30_000,
	}
}

func raising(generation int64, servers ...table.Server) table.Table {
	out := table.Table{Generation: generation, Servers: servers}
	plans := map[int]table.Plan{}
	for _, s := range servers {
		p := plans[s.Core]
		p.Core, p.ThresholdPpm = s.Core, 900_000
		p.Raise = append(p.Raise, table.Raise{ID: s.ID, ToUs: s.HighUs})
		plans[s.Core] = p
	}
	for _, p := range plans {
		out.Plans = append(out.Plans, p)
	}
	return out
}

// TestKilledAtAnyMomentNothingIsLost kills the fast path while budgets go up and down, and looks at the kernel
// after each new start.
func TestKilledAtAnyMomentNothingIsLost(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
	task, p := task(t), newProcess(t, "rtgroup")
	a, b := newContainer(t, task, actuator.IdentityCPU, "a", 1), newContainer(t, task, actuator.IdentityCPU, "b", 1)
	before := a.file(t, "cpu", "cpu.rt_runtime_us") + a.file(t, "cpuset", "cpuset.cpus")
	p.begin()
	if err := p.Apply(t.Context(), raising(1, a.server("a", 2_000, 1), b.server("b", 2_000, 1))); err != nil {
		t.Fatal(err)
	}
	a.realtime(t)
	b.realtime(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range 8 {
		p.stir(a, b, time.Duration(20+random.IntN(150))*time.Millisecond)
		p.begin()
		last := raising(int64(1000+round), a.server("a", 2_000+1_000*int64(round%3), 1), b.server("b", 2_000, 1))
		if err := p.Apply(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		p.consistent(t, a, b)
	}
	if err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.task.Process.Kill() //nolint:errcheck // it is reaped in the end
	if after := a.file(t, "cpu", "cpu.rt_runtime_us") + a.file(t, "cpuset", "cpuset.cpus"); after != before {
		t.Errorf("after the uninstall the kernel has %q; before it had %q", after, before)
	}
}

// stir gives the process one table after another until it is killed.
func (p *process) stir(a, b *container, after time.Duration) {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	var stirring sync.WaitGroup
	stirring.Go(func() {
		for i := int64(2); ctx.Err() == nil; i++ {
			servers := []table.Server{a.server("a", 2_000+1_000*(i%3), 1)}
			if i%4 != 0 {
				servers = append(servers, b.server("b", 2_000+1_000*((i/2)%3), 1))
			}
			_ = p.Apply(ctx, raising(i, servers...)) // it is being killed
		}
	})
	time.Sleep(after) // a kill at a random moment is the point
	p.kill()
	stop()
	stirring.Wait()
}

// consistent waits until the kernel has what the fast path reports, which is within what was asked for.
func (p *process) consistent(t *testing.T, containers ...*container) {
	t.Helper()
	p.eventually("the kernel to have what is intended", func() error {
		report, err := p.Report(t.Context())
		if err != nil {
			return err
		}
		for i, s := range report.Servers {
			inForce := containers[i].file(t, "cpu", "cpu.rt_runtime_us")
			if s.Error != "" || s.BudgetUs < 2_000 || s.BudgetUs > 4_000 || strconv.FormatInt(s.BudgetUs, 10) != inForce {
				return fmt.Errorf("%+v; the kernel has %s", s, inForce)
			}
			if cores := containers[i].file(t, "cpuset", "cpuset.cpus"); cores != "1" {
				return fmt.Errorf("%s is on cores %q; want 1", s.ID, cores)
			}
		}
		if broken := report.Cores[0].Broken; broken != 0 {
			t.Fatalf("more was promised than the plan allows, %d times", broken)
		}
		return nil
	})
}

// bounded is a command that runs as root with these capabilities and no others, as in a container.
func bounded(ctx context.Context, capabilities string, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "setpriv", append([]string{"--bounding-set=" + capabilities, "--inh-caps=-all", program}, args...)...)
}

// kubepods makes the group below which a kubelet keeps its pods. The root of a hierarchy of cgroup v1 is writable only
// for those who may write everywhere; this group is for its owner.
func kubepods(t *testing.T) {
	t.Helper()
	local, err := actuator.NewLocal(host.New("/"), actuator.IdentityCPU)
	if err != nil {
		t.Fatal(err)
	}
	group := fmt.Sprintf("/mainspring-test-%d/kubepods", os.Getpid())
	if err := local.Make(group); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(local.Remove(group), local.Remove(path.Dir(group))); err != nil {
			t.Errorf("removing %s: %v", group, err)
		}
	})
}

// staysSmall fails when what only starting needed has not been given back: reading the kernel's types alone
// takes 10 MiB.
func (p *process) staysSmall() {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(line, &kib); err != nil {
		p.t.Fatal(err)
	}
	p.t.Logf("%d KiB resident", kib)
	if kib > 18<<10 {
		p.t.Errorf("%d KiB resident; want some 12 MiB", kib)
	}
}

func TestFourCapabilitiesAreEnough(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
	kubepods(t)
	for _, backend := range []string{"rtgroup", "fifo", "deadline", "cfs"} {
		p := newProcess(t, backend)
		p.start(bounded(t.Context(), "-all,+bpf,+perfmon,+sys_nice,+ipc_lock", p.program, p.flags()...))
		report, err := p.Report(t.Context())
		if err != nil || !report.Realtime || !report.Locked || report.Backend != backend {
			t.Errorf("%s: %v realtime %v, locked %v, backend %s: %v", backend, err, report.Realtime, report.Locked, report.Backend, report.Missing)
		}
		for _, lack := range report.Missing {
			if strings.Contains(lack, "CAP_") {
				t.Errorf("%s: %s", backend, lack)
			}
		}
		p.staysSmall()
		p.kill()
	}
}

// With the four capabilities and what the chart mounts read-only, the machine's tracefs, jobs of threads that sleep until absolute times
// are seen as such. Nothing but reading a number there is needed.
func TestFourCapabilitiesAndTracefsSeeJobs(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
	kubepods(t)
	p := newProcess(t, "cfs")
	command := bounded(t.Context(), "-all,+bpf,+perfmon,+sys_nice,+ipc_lock", p.program, p.flags()...)
	// Many machines have it mounted, where it cannot be once more; in a namespace of its own the mount can be made read-only all the same.
	const mounted = "{ mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; } && " +
		"mount -o remount,ro,bind /sys/kernel/tracing && exec \"$@\""
	p.start(exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-c", mounted, "sh"}, command.Args...)...))
	if missing := strings.Join(p.report().Missing, "\n"); strings.Contains(missing, "clock_nanosleep") {
		t.Errorf("it says %q", missing)
	}
}

func TestItSaysWhichCapabilityIsMissing(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	privileged.Machine(t)
	kubepods(t)
	p := newProcess(t, "rtgroup")
	for lacking, capabilities := range map[string]string{
		"CAP_BPF":      "-all,+perfmon,+sys_nice,+ipc_lock",
		"CAP_PERFMON":  "-all,+bpf,+sys_nice,+ipc_lock",
		"CAP_SYS_NICE": "-all,+bpf,+perfmon,+ipc_lock",
	} {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		command := bounded(ctx, capabilities, p.program, p.flags()...)
		command.Cancel = func() error { return command.Process.Signal(unix.SIGQUIT) } // it says where it hangs
		command.WaitDelay = 5 * time.Second
		text, err := command.CombinedOutput()
		if ctx.Err() != nil || err == nil || !strings.Contains(string(text), lacking) {
			t.Errorf("without %s: %v\n%s", lacking, err, text)
		}
		stop()
	}
	p.start(bounded(t.Context(), "-all,+bpf,+perfmon,+sys_nice", p.program, p.flags()...))
	report, err := p.Report(t.Context())
	if err != nil || report.Locked || !strings.Contains(strings.Join(report.Missing, "\n"), "CAP_IPC_LOCK") {
		t.Errorf("without CAP_IPC_LOCK it says: %v %q", err, report.Missing)
	}
}
