package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// maxOwn is what this half of the agent may have for itself, in KiB. How many pages of its program's file are mapped
// beside it is the page cache's choice: 23 to 29 MiB were seen of the same program.
const maxOwn = 20 << 10

// The program as it is shipped, with 100 containers that overrun all the time, and as many that are no business of
// its, stays small.
func TestTheAgentStaysSmall(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	program := w.shipped(programs.Agent)
	var servers []v1alpha1.RTServer
	for i := range 100 {
		p := w.crowdPod(i)
		w.run(p, i+1)
		servers = append(servers, serverFor(p))
		w.crowdPod(1000 + i)
	}
	w.rtNode(servers...)
	kubelet := t.TempDir()
	command := exec.CommandContext(t.Context(), program, "--node-name="+w.node.Name, "--kubeconfig="+w.kubeconfig(), "--fastpath-socket="+w.fast.socket,
		"--host-root="+w.tree.Dir(), "--state-dir="+w.stateDir, "--kubelet-dir="+kubelet, "--cdi-dir="+kubelet, "--nri-socket=", "--host=127.0.0.1", "--port="+strings.TrimPrefix(w.freeAddress(), "127.0.0.1:"))
	var log strings.Builder
	command.Stderr = &log
	w.must(command.Start())
	defer func() { _ = command.Process.Signal(os.Interrupt); _ = command.Wait() }()
	w.eventuallyStatus("ready", func(s v1alpha1.RTNodeStatus) bool { return len(s.Servers) == 100 && s.Servers[99].BudgetUs == 2000 })
	pid := command.Process.Pid
	first := rss(t, pid)
	work := func(d time.Duration) time.Duration {
		used := cpuTime(t, pid)
		for begun := time.Now(); time.Since(begun) < d; time.Sleep(200 * time.Millisecond) {
			w.fast.change(func(s *table.ServerReport) {
				s.Overruns, s.Raises, s.Recoveries = s.Overruns+2, s.Raises+2, s.Recoveries+2
			})
		}
		return cpuTime(t, pid) - used
	}
	starting := work(15 * time.Second) // what only starting needed is given back after ten
	measured := time.Duration(sampling.Count(5, 15)) * time.Second
	used, last := work(measured), rss(t, pid)
	own := memory(t, pid, "RssAnon:")
	t.Logf("RSS %d KiB while starting, %d KiB at work (own memory %d, pages of the program %d); CPU %s in 15 s, then %s in %s",
		first, last, own, memory(t, pid, "RssFile:"), starting, used, measured)
	if own > maxOwn {
		t.Errorf("its own memory is %d KiB, more than %d\n%s", own, maxOwn, log.String())
	}
}

// crowdPod is a pod with an ordinary pod's fields.
func (w *world) crowdPod(i int) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-crowd-%d", w.node.Name, i), Annotations: map[string]string{"x": strings.Repeat("x", 1000)}},
		Spec:       corev1.PodSpec{NodeName: w.node.Name, Containers: []corev1.Container{{Name: "app", Image: "app"}, {Name: "side", Image: "side"}}},
	}
	w.must(w.Create(w.Context(), p))
	return p
}

func rss(t testing.TB, pid int) int64 { return memory(t, pid, "VmRSS:") }

// memory is a line of the kernel's status of a process, in KiB.
func memory(t testing.TB, pid int, key string) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatalf("no %s", key)
	return 0
}

// cpuTime of every thread.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	sum := time.Duration(0)
	for _, file := range threads {
		if data, err := os.ReadFile(file); err == nil {
			ns, _ := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

func (w *world) kubeconfig() string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: w.config.Host, CertificateAuthorityData: w.config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: w.config.BearerToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	w.must(clientcmd.WriteToFile(*config, file))
	return file
}
