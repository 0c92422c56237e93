package agent_test

import (
	"errors"
	"fmt"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// What both halves may take together with 100 containers that overrun: docs/agent.md has these figures. Pages of the programs'
// files are counted, whose number the page cache chooses.
const (
	maxPairRSS = 72 << 10 // KiB
	maxPairOwn = 30 << 10 // KiB
	maxPairCPU = 0.10     // of a core, on a machine that does other things
)

// shipped returns a program as it is shipped.
func (w *world) shipped(name string) string {
	w.Helper()
	program, err := programs.Path(w.Context(), w.TempDir(), name)
	w.must(err)
	return program
}

// task builds the real-time task of the benchmarks.
func (w *world) task() string {
	w.Helper()
	program := filepath.Join(w.TempDir(), "task")
	w.must(image.BuildProgram(w.Context(), toolchain.MainModule+"/test/bench/task", program))
	return program
}

// realContainers are containers of this machine, in the kubelet's layout, with a task each.
type realContainers struct {
	*world
	local *actuator.Local
	top   string
	tasks []*exec.Cmd
}

func (w *world) realContainers() *realContainers {
	w.Helper()
	local, err := actuator.NewLocal(host.New("/"), actuator.IdentityCPU)
	w.must(err)
	return &realContainers{world: w, local: local, top: fmt.Sprintf("/mainspring-test-%d", os.Getpid())}
}

// add has a pod's container run on the machine.
func (r *realContainers) add(task string, p *corev1.Pod, n int) {
	r.Helper()
	id := fmt.Sprintf("%064x", n)
	group := r.top + "/kubepods/burstable/pod" + string(p.UID) + "/" + id
	r.must(r.local.Make(group))
	r.Cleanup(func() { r.remove(group) })
	command := exec.CommandContext(r.Context(), task, "-name", p.Name, "-period", "100ms", "-work", "100us", "-overrun", "0.5",
		"-overrun-least", "250us", "-overrun-most", "350us", "-duration", "300s", "-policy", "other", "-core", "1")
	r.must(command.Start())
	r.tasks = append(r.tasks, command)
	r.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	_, err := r.local.Join(group, command.Process.Pid)
	r.must(err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
	r.must(r.Status().Update(r.Context(), p))
}

// remove a group once its task has ended, and those above it that are empty then.
func (r *realContainers) remove(group string) {
	var err error
	for range 200 { // a group is busy until its last thread is reaped
		if err = r.local.Remove(group); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		r.Error(err)
	}
	for above := path.Dir(group); above != "/"; above = path.Dir(above) {
		if r.local.Remove(above) != nil {
			return // others are in it
		}
	}
}

// realtime makes all threads real-time, as those of RT containers are.
func (r *realContainers) realtime() {
	r.Helper()
	for _, task := range r.tasks {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", task.Process.Pid))
		r.must(err)
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			r.must(err)
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
			if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				r.Fatalf("making thread %d real-time: %v", tid, err)
			}
		}
	}
}

// output of a program, which may be read while it still writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start a program, which is interrupted in the end.
func (w *world) start(program string, args ...string) (pid int, log *output) {
	w.Helper()
	log = &output{}
	command := exec.CommandContext(w.Context(), program, args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	command.Stderr = log
	w.must(command.Start())
	w.Cleanup(func() { _ = command.Process.Signal(os.Interrupt); _ = command.Wait() })
	return command.Process.Pid, log
}

// Both halves as they are shipped, on the real kernel and against a real API server, with 100 containers of which every second job overruns and as many
// pods that are no business of theirs.
func TestThePairStaysSmall(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	w := newWorld(t)
	fastpath, program, task := w.shipped(programs.FastPath), w.shipped(programs.Agent), w.task()
	containers, dir := w.realContainers(), t.TempDir()
	var pods []*corev1.Pod
	var servers []v1alpha1.RTServer
	for i := range 100 {
		pods = append(pods, w.crowdPod(i))
		s := serverFor(pods[i])
		s.PeriodUs, s.DeadlineUs, s.BudgetLowUs, s.BudgetHighUs = 100_000, 100_000, 200, 400
		servers = append(servers, s)
		w.crowdPod(1000 + i)
	}
	w.rtNode(servers...)
	privileged.Machine(t)
	for i, p := range pods {
		containers.add(task, p, i+1)
	}
	socket := filepath.Join(dir, "s")
	fast, fastLog := w.start(fastpath, "--socket="+socket, "--state-dir="+filepath.Join(dir, "fastpath"), "--backend=rtgroup", "--cores=1", "--charge-granularity=100us")
	slow, slowLog := w.start(program, "--node-name="+w.node.Name, "--kubeconfig="+w.kubeconfig(), "--fastpath-socket="+socket, "--host-root=/",
		"--state-dir="+w.stateDir, "--kubelet-dir="+dir, "--cdi-dir="+dir, "--nri-socket=", "--host=127.0.0.1", "--port="+strings.TrimPrefix(w.freeAddress(), "127.0.0.1:"))
	w.eventuallyStatus("100 servers with budgets", func(s v1alpha1.RTNodeStatus) bool {
		return len(s.Servers) == 100 && s.Servers[0].BudgetUs >= 200 && s.Servers[99].BudgetUs >= 200
	})
	containers.realtime()
	both := func(key string) int64 { return memory(t, fast, key) + memory(t, slow, key) }
	time.Sleep(12 * time.Second) // what only starting needed is given back after ten
	begun, used := time.Now(), cpuTime(t, fast)+cpuTime(t, slow)
	most, own := int64(0), int64(0)
	for time.Since(begun) < time.Duration(sampling.Count(5, 10))*time.Second {
		time.Sleep(250 * time.Millisecond)
		most, own = max(most, both("VmRSS:")), max(own, both("RssAnon:"))
	}
	share := float64(cpuTime(t, fast)+cpuTime(t, slow)-used) / float64(time.Since(begun))
	t.Logf("both at most %d KiB resident (fast path %d, agent %d at the end), own memory %d KiB; %.1f %% of a core", most, rss(t, fast), rss(t, slow), own, 100*share)
	w.eventuallyStatus("that they overran", func(s v1alpha1.RTNodeStatus) bool { return s.Servers[0].Overruns > 0 && s.Servers[99].Overruns > 0 })
	if most > maxPairRSS || own > maxPairOwn || share > maxPairCPU {
		t.Errorf("want at most %d KiB resident, %d KiB own memory, %.0f %% of a core\n%s\n%s", maxPairRSS, maxPairOwn, 100*maxPairCPU, fastLog, slowLog)
	}
}
