package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Node is what a node's agent and the controller know of its real-time work.
type Node struct {
	// Alive: the agent has shown within its time that it lives.
	Alive bool
	// GranularityUs is how far a task runs past its budget, in microseconds.
	GranularityUs int64
	// Cores that hold servers.
	Cores []Core
	// Containers with a budget.
	Containers []Container
}

// Core is the bandwidth of a core, in parts per million of it.
type Core struct {
	ID int
	// Capacity may be promised; Charged is what the admission test counts; InForce is what the agent
	// says is enforced.
	Capacity, Charged, InForce int64
}

// Container is what an agent counted for a container.
type Container struct {
	Namespace, Pod, Container string
	Overruns, Misses, Drift   int64
}

// NodeSet serves the last known of each node. It is a prometheus.Collector; the series of a node end
// when it is deleted, and those of a container when its node no longer names it.
type NodeSet struct {
	mu    sync.RWMutex
	nodes map[string]Node
}

func newNodeSet() *NodeSet { return &NodeSet{nodes: map[string]Node{}} }

var (
	bandwidth = prometheus.NewDesc(namespace+"_core_bandwidth_ratio",
		"Share of a core, for cores that hold real-time containers: capacity may be promised, charged is counted by the admission test, in-force is enforced by the agent.",
		[]string{"node", "core", "kind"}, nil)
	granularity = prometheus.NewDesc(namespace+"_budget_granularity_seconds",
		"How far a task runs past its budget on the node, as its agent measured it.", []string{"node"}, nil)
	alive = prometheus.NewDesc(namespace+"_agent_alive",
		"1 while the node's agent shows that it lives, 0 once it has been silent for too long.", []string{"node"}, nil)
	overruns = perContainer("overruns_total", "Periods in which a container used up its budget with work pending.")
	misses   = perContainer("deadline_misses_total", "Jobs of a container that ended after their deadline.")
	drift    = perContainer("drift_total", "Changes that something else made to what the agent had applied to a container.")
)

func perContainer(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, []string{"namespace", "pod", "container"}, nil)
}

// Set replaces what is known of a node.
func (s *NodeSet) Set(name string, n Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = n
}

// Delete ends the series of a node and of its containers.
func (s *NodeSet) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// Describe implements prometheus.Collector.
func (s *NodeSet) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{bandwidth, granularity, alive, overruns, misses, drift} {
		to <- d
	}
}

// Collect implements prometheus.Collector. A container that two nodes name, as for a moment after a pod
// was re-created under its name elsewhere, is served once: a series given twice would fail the scrape.
func (s *NodeSet) Collect(to chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	seen := map[[3]string]bool{}
	for name, n := range s.nodes {
		to <- gauge(granularity, float64(n.GranularityUs)/1e6, name)
		to <- gauge(alive, one(n.Alive), name)
		for _, c := range n.Cores {
			id := strconv.Itoa(c.ID)
			to <- gauge(bandwidth, float64(c.Capacity)/1e6, name, id, "capacity")
			to <- gauge(bandwidth, float64(c.Charged)/1e6, name, id, "charged")
			to <- gauge(bandwidth, float64(c.InForce)/1e6, name, id, "in-force")
		}
		for _, c := range n.Containers {
			if key := [3]string{c.Namespace, c.Pod, c.Container}; !seen[key] {
				seen[key] = true
				to <- total(overruns, c.Overruns, c)
				to <- total(misses, c.Misses, c)
				to <- total(drift, c.Drift, c)
			}
		}
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func total(d *prometheus.Desc, value int64, c Container) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), c.Namespace, c.Pod, c.Container)
}
