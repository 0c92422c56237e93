package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// PodView is a pod. All of it but Governed and Claims is read from the Pod alone.
type PodView struct {
	UID                       types.UID
	Namespace, Name, NodeName string
	Phase                     corev1.PodPhase
	Deleting                  bool
	Created                   metav1.Time
	Grace                     time.Duration // that it may take to end
	Labels                    map[string]string
	// Containers may be governed; Sidecars (init containers that stay) may, when they are named.
	Containers, Sidecars []string
	// Claims are the names, within the pod, of its claims for real-time cores, as the webhook adds them.
	Claims []PodClaim
	// SchedulingGates hold it back from the scheduler.
	SchedulingGates []string
	// Unschedulable is the scheduler's message, and since when it says so; empty when it says nothing.
	Unschedulable      string
	UnschedulableSince metav1.Time
	// Pending is annotation mckube.io/rt-pending, Configured mckube.io/rt-configured.
	Pending, Configured bool
	// Preempting is the room that is being made for it, if any.
	Preempting *Preemption
	// Owned: a controller makes it again when it goes, on any node; those of DaemonSets belong to theirs.
	Owned bool
	// Remade: a controller makes it again when it goes, be it on its node only.
	Remade bool
	// Namesake: what is made again in its place has its name, as of a StatefulSet.
	Namesake bool
	// Replaces is the pod in whose place it was made on another node. It is empty for none, and if that was not recorded.
	Replaces types.UID
	// Governed lists the containers that McKubes govern, by name. Derived from McKubes and claims.
	Governed []Governed

	placement *placement
}

// PodClaim is an entry of the pod's resourceClaims.
type PodClaim struct {
	// Name within the pod, Object the name of the ResourceClaim (empty until there is one), Template
	// that of its template, Container the first container that uses it.
	Name, Object, Template, Container string
}

// placement is what a pod asks of its node.
type placement struct {
	nodeSelector map[string]string
	affinity     *corev1.NodeAffinity
	tolerations  []corev1.Toleration
}

// Key names the pod.
func (p *PodView) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Finished tells that its containers have ended for good.
func (p *PodView) Finished() bool {
	return p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed
}

// Governed is a container that a McKube governs.
type Governed struct {
	// Container is empty when no container of the pod is meant (Err says why).
	Container string
	// McKube governs it; Rivals would, were they older.
	McKube *mcv1.McKube
	Rivals []*mcv1.McKube
	// Server is what the McKube makes of it; valid when Err is nil.
	Server rt.Server
	Err    error
	// Claim is the container's claim on a core; nil when there is none. Of several it is the oldest that
	// was given a core. Further are the others: a budget that grew is paid by a second claim, because
	// what a claim was given does not change.
	Claim   *ClaimView
	Further []*ClaimView
}

// ClaimView is a ResourceClaim for real-time cores.
type ClaimView struct {
	UID             types.UID
	Namespace, Name string
	// PodUID is the pod it is reserved for or owned by; empty when it has none.
	PodUID types.UID
	// Node and Core are what it was given; Core is rt.NoCore until then.
	Node string
	Core int
	// Claimed is the bandwidth that it takes from the core, as the scheduler counts.
	Claimed  rt.PPM
	Deleting bool
	// Held: the controller allocated it for a container that ran already, not the scheduler.
	Held    bool
	Created metav1.Time

	podClaim string  // annotation of kube's own controller: the name within the pod
	further  []share // cores beyond the first, which none of our templates asks for
}

// Allocated tells whether there is a claim and it was given a core.
func (c *ClaimView) Allocated() bool { return c != nil && c.Core != rt.NoCore }

type share struct {
	node string
	core int
	ppm  rt.PPM
}

// AgentState is what the controller thinks of a node's agent.
type AgentState string

// States of an agent.
const (
	AgentAlive   AgentState = "Alive"
	AgentSilent  AgentState = "Silent"
	AgentUnknown AgentState = "Unknown"
)

// NodeView is a node with real-time cores or servers. It is derived as a whole whenever an object that
// concerns it changes.
type NodeView struct {
	// Name of the node; UID is empty while there is no Node of that name.
	Name string
	UID  types.UID
	// Ready, Schedulable (not cordoned), Deleting are the Node's. Busy: it says that its CPU is busy.
	Ready, Schedulable, Deleting, Busy bool
	// Offered: its agent publishes the cores to the scheduler. Otherwise the cores are those that the
	// RTNode last reported.
	Offered bool
	Backend string
	// Granularity in microseconds is what its budgets are charged: the larger of the cluster's and the node's.
	Granularity int64
	// Measured is the granularity of the node alone.
	Measured int64
	Agent    AgentState
	// RTNode is nil when it is missing, or belongs to an earlier Node of the name.
	RTNode *v1alpha1.RTNode
	// Stale: there is an RTNode, of an earlier Node of the name.
	Stale bool
	// Cores by number, Servers by ID, Reservations by key.
	Cores        []CoreView
	Servers      []ServerView
	Reservations []Reservation
	// Problems are what could not be read, in words.
	Problems []string

	labels map[string]string
	taints []corev1.Taint
	id     *nodeID
	hash   uint32
}

// CoreView is a core and what is promised of it.
type CoreView struct {
	rt.Core
	// Claimed is the sum of the claims on it (the witness packing), with at least what runs of each server;
	// Placed that of the servers that run on it; Reserved what reservations take beyond.
	Claimed, Placed, Reserved rt.PPM
	// Free is what one more claim may ask.
	Free rt.PPM
}

// ServerView is a container that is, or should be, a server of the node.
type ServerView struct {
	// Server is what its McKube asks for; InForce is what counts for others.
	rt.Server
	PodUID                    types.UID
	Namespace, Pod, Container string
	// McKube governs it. It is nil when none does any longer, or the server is a claim without a known container.
	McKube *mcv1.McKube
	// Claim and Further are its claims, as in Governed.
	Claim   *ClaimView
	Further []*ClaimView
	// Claimed is the bandwidth that its claims take from its core.
	Claimed rt.PPM
	// Witness is the core of its claim, Physical the one of RTNode.spec; rt.NoCore for none.
	Witness, Physical int
	// Running: its pod is there, bound to this node and not finished.
	Running bool
	// Spec is its entry in RTNode.spec, Applied in RTNode.status; nil for none.
	Spec    *v1alpha1.RTServer
	Applied *v1alpha1.RTServerStatus

	inForce *rt.Server // where it is not what the McKube asks for
}

// Claimant tells whether the server stands for a claim whose container is unknown.
func (s *ServerView) Claimant() bool { return s.PodUID == "" }

// Reservation keeps room on a core for a server that is about to be placed there.
type Reservation struct {
	Key, Node string
	Core      int
	Server    rt.Server
	// Until is when it ends by itself; zero: never.
	Until time.Time
}

// Candidate is a core for a server.
type Candidate struct {
	Node    string
	Core    int
	Verdict rt.Verdict
}

// Label is the value of one of the Node's labels; empty without it.
func (n *NodeView) Label(key string) string { return n.labels[key] }

// Tainted tells whether the Node has a taint of the key.
func (n *NodeView) Tainted(key string) bool {
	return slices.ContainsFunc(n.taints, func(t corev1.Taint) bool { return t.Key == key })
}

// Core finds a core by its number.
func (n *NodeView) Core(id int) (*CoreView, bool) {
	for i := range n.Cores {
		if n.Cores[i].ID == id {
			return &n.Cores[i], true
		}
	}
	return nil, false
}

// Server finds a server by its ID.
func (n *NodeView) Server(id string) (*ServerView, bool) {
	for i := range n.Servers {
		if n.Servers[i].ID == id {
			return &n.Servers[i], true
		}
	}
	return nil, false
}

// RT is what rt.Arrange takes: the node's cores, the servers whose pods run there, where they are and
// where their claims are.
func (n *NodeView) RT() rt.Node {
	out := rt.Node{Current: rt.Placement{}, Witness: rt.Placement{}}
	for _, c := range n.Cores {
		out.Cores = append(out.Cores, c.Core)
	}
	for _, s := range n.Servers {
		if !s.Running || s.McKube == nil {
			continue
		}
		out.Servers = append(out.Servers, s.Server)
		if s.Physical != rt.NoCore {
			out.Current[s.ID] = s.Physical
		}
		if s.Witness != rt.NoCore {
			out.Witness[s.ID] = s.Witness
		}
	}
	return out
}
