package state

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// rederive makes a node's view anew and brings the index in line with it.
func (s *Snapshot) rederive(name string) {
	key := pair{first: name}
	before, _ := s.views.get(key)
	after := s.derive(name)
	s.index = s.index.replace(before, after)
	if after == nil {
		s.views = s.views.remove(key)
		return
	}
	s.views = s.views.put(key, after)
}

// derive makes the view of a node; nil when it has neither cores nor servers.
func (s *Snapshot) derive(name string) *NodeView {
	n := &NodeView{Name: name, Agent: AgentUnknown, Granularity: s.granularity, id: &nodeID{name}, hash: hashOf(name)}
	if node, ok := s.nodes.get(pair{first: name}); ok {
		n.UID, n.Ready, n.Schedulable, n.Deleting, n.Busy = node.uid, node.ready, node.schedulable, node.deleting, node.busy
		n.labels, n.taints = node.labels, node.taints
	}
	s.addRTNode(n)
	s.addCores(n)
	servers := serverList{node: n}
	s.addClaims(&servers)
	s.addPods(&servers)
	servers.addRTNode()
	n.Servers = servers.sorted()
	for i := range n.Servers {
		n.settle(&n.Servers[i], s.granularity)
	}
	n.Reservations = s.reservationsOn(name)
	if len(n.Cores) == 0 && len(n.Servers) == 0 && n.RTNode == nil && !n.Stale {
		return nil
	}
	n.addUp()
	return n
}

// addRTNode takes the RTNode unless it belongs to an earlier Node of the name.
func (s *Snapshot) addRTNode(n *NodeView) {
	r, ok := s.rtNodes.get(pair{first: n.Name})
	if !ok {
		return
	}
	if owner := nodeOwner(r.OwnerReferences); owner != "" && owner != n.UID {
		n.Stale = true
		return
	}
	n.RTNode = r
	n.Backend = r.Status.Backend
	n.Measured = r.Status.BudgetGranularityUs
	n.Busy = n.Busy || r.Status.Pressure.BusySince != nil
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAgentAlive); c != nil {
		switch c.Status {
		case metav1.ConditionTrue:
			n.Agent = AgentAlive
		case metav1.ConditionFalse:
			n.Agent = AgentSilent
		}
	}
}

// addCores takes the cores that the scheduler is offered or, while there are none, those that the RTNode
// last reported: servers that run stay on their cores when an agent restarts.
func (s *Snapshot) addCores(n *NodeView) {
	var cores []rt.Core
	for _, slice := range s.currentSlices(n) {
		n.Offered = true
		n.Backend = slice.backend
		n.Problems = append(n.Problems, slice.problems...)
		for _, c := range slice.cores {
			cores = append(cores, c.core())
		}
	}
	if !n.Offered && n.RTNode != nil {
		cores = reportedCores(n.RTNode)
	}
	slices.SortStableFunc(cores, func(a, b rt.Core) int { return a.ID - b.ID })
	cores = slices.CompactFunc(cores, func(a, b rt.Core) bool { return a.ID == b.ID })
	for _, c := range cores {
		n.Measured = max(n.Measured, c.Granularity)
	}
	n.Granularity = max(n.Granularity, n.Measured)
	n.Cores = make([]CoreView, len(cores))
	for i, c := range cores {
		c.Granularity = n.Granularity
		n.Cores[i].Core = c
	}
}

// currentSlices are those of the node that is there now, of the newest generation of its pool.
func (s *Snapshot) currentSlices(n *NodeView) []*slice {
	var out []*slice
	newest := int64(0)
	for _, name := range linked(s.nodeSlices, n.Name) {
		slice, ok := s.slices.get(pair{first: name})
		if !ok || n.UID == "" || slice.owner != "" && slice.owner != n.UID {
			continue
		}
		newest = max(newest, slice.generation)
		out = append(out, slice)
	}
	return slices.DeleteFunc(out, func(s *slice) bool { return s.generation < newest })
}

func reportedCores(r *v1alpha1.RTNode) []rt.Core {
	out := make([]rt.Core, len(r.Status.Cores))
	for i, c := range r.Status.Cores {
		out[i] = rt.Core{
			ID: int(c.ID), NUMA: int(c.NUMA), Sibling: int(c.Sibling), Capacity: rt.PPM(c.CapacityPpm),
			EscalationReserve: rt.PPM(c.EscalationReservePpm), Policy: rt.PolicyOf(r.Status.Backend),
		}
	}
	return out
}

// serverList collects the servers of a node from claims, pods and RTNode.
type serverList struct {
	node *NodeView
	list []ServerView
}

func (l *serverList) find(id string) *ServerView {
	for i := range l.list {
		if l.list[i].ID == id {
			return &l.list[i]
		}
	}
	return nil
}

func (l *serverList) sorted() []ServerView {
	slices.SortFunc(l.list, func(a, b ServerView) int { return strings.Compare(a.ID, b.ID) })
	return append(make([]ServerView, 0, len(l.list)), l.list...) // it lives long and its spare room would too
}

// addClaims adds what was given a core of the node. A claim whose container is not known, or no longer
// runs, keeps its bandwidth until the API says that it was taken back.
func (s *Snapshot) addClaims(l *serverList) {
	for _, uid := range linked(s.nodeClaims, l.node.Name) {
		claim, ok := s.claims.get(pair{first: uid})
		if !ok {
			continue
		}
		if claim.Node == l.node.Name {
			if v, ok := s.claimed(l.node, claim); ok {
				l.list = append(l.list, v)
			}
		}
		for i, f := range claim.further {
			if f.node == l.node.Name {
				l.list = append(l.list, l.node.claimant(claim, fmt.Sprintf("claim/%s/%d", claim.UID, i+1), f.core, f.ppm))
			}
		}
	}
}

// claimed is the server of a claim. ok is false for a claim that its container's first one speaks for.
func (s *Snapshot) claimed(n *NodeView, claim *ClaimView) (v ServerView, ok bool) {
	nobodys := n.claimant(claim, "claim/"+string(claim.UID), claim.Core, claim.Claimed)
	pod, ok := s.Pod(claim.PodUID)
	if !ok || pod.Finished() {
		return nobodys, true
	}
	for _, g := range pod.Governed {
		switch {
		case g.Err != nil || g.Claim == nil:
		case g.Claim.UID == claim.UID:
			v := pod.server(g)
			v.Witness, v.Claimed, v.Running = claim.Core, g.bandwidth(), pod.NodeName == n.Name
			return v, true
		case slices.Contains(g.Further, claim):
			return nobodys, claim.Node != g.Claim.Node || claim.Core != g.Claim.Core
		}
	}
	return nobodys, true
}

// bandwidth is what the container's claims take from the core of the first.
func (g Governed) bandwidth() rt.PPM {
	total := g.Claim.Claimed
	for _, f := range g.Further {
		if f.Node == g.Claim.Node && f.Core == g.Claim.Core {
			total += f.Claimed
		}
	}
	return total
}

// claimant stands for a claim whose container is unknown. No controller may make it a victim.
func (n *NodeView) claimant(claim *ClaimView, id string, core int, ppm rt.PPM) ServerView {
	return ServerView{
		Server: placeholder(id, ppm, n.Granularity), Namespace: claim.Namespace, Claim: claim, Claimed: ppm,
		Witness: core, Physical: rt.NoCore,
	}
}

// server is the view of a governed container that is nowhere yet.
func (p *PodView) server(g Governed) ServerView {
	return ServerView{
		Server: g.Server, PodUID: p.UID, Namespace: p.Namespace, Pod: p.Name, Container: g.Container,
		McKube: g.McKube, Claim: g.Claim, Further: g.Further, Witness: rt.NoCore, Physical: rt.NoCore,
	}
}

// addPods adds the governed containers that run there without a core of the node.
func (s *Snapshot) addPods(l *serverList) {
	for _, uid := range linked(s.nodePods, l.node.Name) {
		pod, ok := s.Pod(types.UID(uid))
		if !ok || pod.Finished() {
			continue
		}
		for _, g := range pod.Governed {
			if g.Err == nil && l.find(g.Server.ID) == nil {
				v := pod.server(g)
				v.Running = true
				l.list = append(l.list, v)
			}
		}
	}
}

// addRTNode adds where servers run, and what was applied.
func (l *serverList) addRTNode() {
	r := l.node.RTNode
	if r == nil {
		return
	}
	for i := range r.Spec.Servers {
		spec := &r.Spec.Servers[i]
		v := l.find(rtdra.ServerID(spec.PodUID, spec.Container))
		if v == nil {
			l.list = append(l.list, l.node.specified(spec))
			v = &l.list[len(l.list)-1]
		}
		v.Spec = spec
		if len(spec.Cores) > 0 {
			v.Physical = int(spec.Cores[0])
		}
	}
	for i := range r.Status.Servers {
		applied := &r.Status.Servers[i]
		if v := l.find(rtdra.ServerID(applied.PodUID, applied.Container)); v != nil {
			v.Applied = applied
		}
	}
}

// specified is a server that is known from RTNode.spec alone.
func (n *NodeView) specified(spec *v1alpha1.RTServer) ServerView {
	server, err := serverTold(spec)
	if err != nil {
		n.Problems = append(n.Problems, fmt.Sprintf("RTNode.spec.servers of pod %s/%s, container %s: %v", spec.Namespace, spec.Pod, spec.Container, err))
		server = placeholder(server.ID, rt.MaxCapacity, n.Granularity)
	}
	return ServerView{
		Server: server, PodUID: spec.PodUID, Namespace: spec.Namespace, Pod: spec.Pod, Container: spec.Container,
		Witness: rt.NoCore, Physical: rt.NoCore,
	}
}

// addUp fills in what is promised of each core.
func (n *NodeView) addUp() {
	for i := range n.Servers {
		s := &n.Servers[i]
		if core, ok := n.Core(s.home()); ok {
			core.Claimed += s.charge(core.Granularity)
		}
		if core, ok := n.Core(s.Physical); ok {
			running := s.InForce()
			core.Placed += running.Charge(core.Granularity)
		}
	}
	for i := range n.Cores {
		n.book(&n.Cores[i])
	}
}

// book fills in what reservations take of a core, and what is left.
func (n *NodeView) book(c *CoreView) {
	c.Reserved = 0
	for _, r := range n.Reservations {
		if r.Core == c.ID {
			c.Reserved += n.booked(r, c.Granularity)
		}
	}
	c.Free = max(0, c.Capacity-c.Claimed-c.Reserved)
}

// rebook does what rederive would where only reservations of one core have changed: it is on the way of
// every admission.
func (s *Snapshot) rebook(b booked) {
	key := pair{first: b.node}
	before, ok := s.views.get(key)
	if !ok {
		return
	}
	after := *before
	after.Reservations = s.reservationsOn(b.node)
	after.Cores = slices.Clone(before.Cores)
	core, ok := after.Core(b.core)
	if !ok {
		return
	}
	after.book(core)
	s.index = s.index.replaceCore(before, &after, b.core)
	s.views = s.views.put(key, &after)
}

func (s *Snapshot) reservationsOn(node string) []Reservation {
	var out []Reservation
	for _, key := range linked(s.nodeReservations, node) {
		if r, ok := s.reservations.get(pair{first: key}); ok {
			out = append(out, *r)
		}
	}
	return out
}
