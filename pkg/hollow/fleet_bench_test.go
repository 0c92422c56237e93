package hollow_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	manyNodes = 1000
	steady    = 20 * time.Second
)

// BenchmarkThousandNodes plays the agents of 1,000 nodes of 3 real-time containers each in one process,
// against a real API server on the same machine: how long until all cores are published, and, once all
// specs are obeyed, what heartbeats (one in 5 s for each node) cost the process in CPU, and what it holds in memory.
// The API server and this client's own requests take the other CPUs.
func BenchmarkThousandNodes(b *testing.B) {
	for range b.N {
		w := newWorld(b)
		var nodes []*corev1.Node
		for i := range manyNodes {
			nodes = append(nodes, atom(fmt.Sprintf("many-%d", i), ""))
			w.create(nodes[i])
		}
		begun := time.Now()
		w.fleetWith(5 * time.Second)
		w.eventually("the slices", func() string { return missing(w.published()) })
		b.ReportMetric(time.Since(begun).Seconds(), "publish_s")
		for _, node := range nodes {
			w.create(rtNodeOf(node, w.pods(node.Name)...))
		}
		w.eventually("the statuses", func() string {
			time.Sleep(time.Second) // reading all of them is work for the API server too
			return missing(w.obeying())
		})
		before, at := cpuTime(b), time.Now()
		time.Sleep(steady)
		b.ReportMetric((cpuTime(b)-before).Seconds()/time.Since(at).Seconds(), "cores")
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.HeapAlloc)/1e6, "heap_MB")
	}
}

func missing(have int) string {
	if have < manyNodes {
		return fmt.Sprintf("%d of %d", have, manyNodes)
	}
	return ""
}

// pods creates one pod for each core of a node, and tells their servers.
func (w world) pods(node string) []v1alpha1.RTServer {
	var servers []v1alpha1.RTServer
	for core := int32(1); core <= 3; core++ {
		pod := podOn(node, fmt.Sprintf("%s-%d", node, core), "30s overrun 2")
		w.create(pod)
		s := highServer(pod)
		s.Cores = []int32{core}
		servers = append(servers, s)
	}
	return servers
}

func (w world) published() int {
	list := &resourcev1.ResourceSliceList{}
	if err := w.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	n := 0
	for _, s := range list.Items {
		if strings.HasPrefix(s.Name, "many-") {
			n++
		}
	}
	return n
}

func (w world) obeying() int {
	list := &v1alpha1.RTNodeList{}
	if err := w.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	n := 0
	for _, rtNode := range list.Items {
		if len(rtNode.Status.Servers) == 3 && rtNode.Status.Servers[2].BudgetUs > 0 {
			n++
		}
	}
	return n
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
