// Package observe records what happens in a cluster, from the API alone: nodes, pods, cost and power over time, and
// the decisions that were taken and why.
//
// A Recorder watches; State is the cluster at one moment; Sample is one point of the time series; Decision is one line
// a user can read. Everything but the Recorder is plain values.
package observe

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// Phase is where a node stands in its life.
type Phase string

// The phases of a node.
const (
	Starting Phase = "starting" // ordered from the cloud, not yet usable
	Ready    Phase = "ready"
	NotReady Phase = "not ready" // its kubelet does not answer or reports a fault
	Leaving  Phase = "leaving"   // being replaced or drained
)

// Node is one machine: a NodeClaim and, once it has joined, its Node.
type Node struct {
	Name         string // of the Node, or of the NodeClaim until it joins
	Claim        string
	Pool         string
	Type         string
	CapacityType string
	Zone         string
	Phase        Phase
	Why          string // why it is leaving or not ready, else ""
	Created      time.Time
	Price        float64            // $/h
	Power        powermodel.Machine // zero where nothing is known of it
	CPU          Amount             // cores
	MemoryGiB    Amount
	GPU          Amount            // whole GPUs or shares of GPUs, in GPUs
	DeviceLoad   float64           // requested share of GPUs and NPUs, 0 to 1
	Pods         int               // bound and not finished, without DaemonSet pods
	Labels       map[string]string // of the NodeClaim; not to be changed
	Cores        []Core            // for real-time work, by number
	Pressure     bool              // real-time work of the node is late or finds no room
	// Disrupted says that a disruption counts this node against its pool's budget: it is leaving or not ready.
	Disrupted bool

	requested, allocatable corev1.ResourceList // of which DeviceLoad is made
}

// Amount is a capacity and how much of it pods request.
type Amount struct{ Requested, Capacity float64 }

// Share is the requested part of the capacity, 0 when there is none.
func (a Amount) Share() float64 {
	if a.Capacity <= 0 {
		return 0
	}
	return a.Requested / a.Capacity
}

// Plus adds two amounts.
func (a Amount) Plus(b Amount) Amount {
	return Amount{a.Requested + b.Requested, a.Capacity + b.Capacity}
}

// Watts is the modelled power draw: requests of CPU drive the host, requests of GPUs and NPUs drive the devices. A
// machine that has not joined yet draws its idle watts.
func (n Node) Watts() float64 { return n.Power.Watts(n.CPU.Share(), n.DeviceLoad) }

// Age is how long ago the machine was ordered.
func (n Node) Age(now time.Time) time.Duration { return now.Sub(n.Created) }

// State is the cluster at one moment.
type State struct {
	At      time.Time
	Nodes   []Node // ordered by pool, then age, then name
	Pending int    // pods that no node runs yet
	Running int    // pods bound to a node and running
	Pods    []Pod
	McKubes []McKube // by namespace and name
	// PeakDisrupted is, by pool, the largest number of nodes disrupted at once since the last Recorder.ResetPeaks, told
	// by every watch event, not by samples.
	PeakDisrupted map[string]int
}

// Pod is what chapters and tables need to know of a pod.
type Pod struct {
	Namespace, Name string
	App             string // label "app"
	Node            string // "" while pending
	Running         bool
	Started         time.Time // when its node took it up, zero before
}

// Price is the running cost of all nodes in $/h.
func (s State) Price() float64 { return sum(s.Nodes, func(n Node) float64 { return n.Price }) }

// idlePrice is the running cost of nodes without a pod in $/h.
func (s State) idlePrice() float64 {
	return sum(s.Nodes, func(n Node) float64 {
		if n.Pods > 0 {
			return 0
		}
		return n.Price
	})
}

// Watts is the modelled power draw of all nodes.
func (s State) Watts() float64 { return sum(s.Nodes, Node.Watts) }

// CPU is the requested and allocatable CPU of all nodes in cores.
func (s State) CPU() Amount { return total(s.Nodes, func(n Node) Amount { return n.CPU }) }

// GPU is the requested and allocatable GPUs of all nodes.
func (s State) GPU() Amount { return total(s.Nodes, func(n Node) Amount { return n.GPU }) }

// Pool is the nodes of one pool, ordered as in Nodes.
func (s State) Pool(name string) []Node {
	var nodes []Node
	for _, n := range s.Nodes {
		if n.Pool == name {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Pools are the names of the pools that have nodes, sorted.
func (s State) Pools() []string {
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Pool)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// InPhase counts the nodes in a phase.
func (s State) InPhase(p Phase) int {
	count := 0
	for _, n := range s.Nodes {
		if n.Phase == p {
			count++
		}
	}
	return count
}

// NodeOf finds a node by its name or its claim's.
func (s State) NodeOf(name string) (Node, bool) {
	i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == name || n.Claim == name })
	if i < 0 {
		return Node{}, false
	}
	return s.Nodes[i], true
}

// Disrupted counts, by pool, the nodes that a disruption holds.
func Disrupted(nodes []Node) map[string]int {
	counts := map[string]int{}
	for _, n := range nodes {
		if n.Disrupted {
			counts[n.Pool]++
		}
	}
	return counts
}

func order(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

func sum(nodes []Node, of func(Node) float64) float64 {
	var s float64
	for _, n := range nodes {
		s += of(n)
	}
	return s
}

func total(nodes []Node, of func(Node) Amount) Amount {
	var a Amount
	for _, n := range nodes {
		a = a.Plus(of(n))
	}
	return a
}
