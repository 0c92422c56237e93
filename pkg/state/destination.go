package state

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Destination is where all governed containers of a pod would go.
type Destination struct {
	Node string
	// Cores by the IDs of the servers.
	Cores map[string]int
}

// Destination finds a node beside the pod's own with a core for each of its governed containers. Nodes, and cores of a
// node, that have more left come first, because a pod that is moved for want of room is not to want for it again. Filters
// say which nodes will do beside those that accept the pod; they are asked last. ok is false without governed containers,
// and when no node will do.
func (s *Snapshot) Destination(uid types.UID, accept ...NodeFilter) (d Destination, ok bool) {
	return s.destination(uid, nil, accept...)
}

// Destinations finds one for each of several pods that leave a node together: what one takes, the next does not have. The most critical
// choose first, then the largest. ok is false when one of them finds none.
func (s *Snapshot) Destinations(pods []types.UID, accept func(pod types.UID, n *NodeView) bool) (out map[types.UID]Destination, ok bool) {
	var groups [][]ServerView
	for _, uid := range pods {
		if pod, ok := s.Pod(uid); ok && len(pod.servers()) > 0 {
			groups = append(groups, pod.servers())
		}
	}
	inOrder(groups, s.granularity)
	out, taken := map[types.UID]Destination{}, arrivals{}
	for _, group := range groups {
		uid := group[0].PodUID
		d, ok := s.destination(uid, taken, func(n *NodeView) bool { return accept(uid, n) })
		if !ok {
			return nil, false
		}
		out[uid] = d
		taken.add(d, group)
	}
	return out, len(out) == len(pods)
}

// NoDestination is why cores of a node that accepts the pod do not take its governed containers, in words.
func (s *Snapshot) NoDestination(uid types.UID, node string) string {
	pod, known := s.Pod(uid)
	n, offers := s.NodeView(node)
	switch {
	case !known || len(pod.servers()) == 0:
		return "nothing of the pod is governed yet"
	case !offers || !n.Offered:
		return "the node's agent publishes no cores"
	}
	for _, v := range pod.servers() {
		if numbers := s.classesOf(n, v.Server); !slices.ContainsFunc(numbers, func(number Number) bool { return number.OK }) {
			return fmt.Sprintf("container %s: %s", v.Container, s.nowhere(v.Server, numbers).Message)
		}
	}
	return "each of them finds one, but not all of them together"
}

// arrivals are servers that go to cores of nodes.
type arrivals map[string]map[int][]rt.Server

func (a arrivals) add(d Destination, group []ServerView) {
	if a[d.Node] == nil {
		a[d.Node] = map[int][]rt.Server{}
	}
	for _, v := range group {
		core := d.Cores[v.ID]
		a[d.Node][core] = append(a[d.Node][core], v.Server)
	}
}

// destination is that beside what goes to nodes already.
func (s *Snapshot) destination(uid types.UID, taken arrivals, accept ...NodeFilter) (d Destination, ok bool) {
	pod, found := s.Pod(uid)
	if !found {
		return Destination{}, false
	}
	own, group := s.leaving(pod)
	if len(group) == 0 {
		return Destination{}, false
	}
	for _, n := range s.roomiest(own, group[0].Server) {
		if accepted, _ := s.Accepts(n, pod); !accepted {
			continue
		}
		cores, fits := n.spread(group, taken[n.Name])
		if fits && !slices.ContainsFunc(accept, func(f NodeFilter) bool { return !f(n) }) {
			return Destination{Node: n.Name, Cores: cores}, true
		}
	}
	return Destination{}, false
}

// CoresOf are the cores of another node that the governed containers of a pod would have there, as Destination chooses them. ok
// is false when they have none there together.
func (s *Snapshot) CoresOf(uid types.UID, n *NodeView) (cores map[string]int, ok bool) {
	pod, found := s.Pod(uid)
	if !found {
		return nil, false
	}
	_, group := s.leaving(pod)
	if len(group) == 0 {
		return nil, false
	}
	return n.spread(group, nil)
}

// leaving are the governed containers of a pod in the order in which they choose cores, and its node.
func (s *Snapshot) leaving(pod *PodView) (own *NodeView, group []ServerView) {
	own, found := s.NodeView(pod.NodeName)
	if !found {
		return nil, nil
	}
	for _, v := range own.Servers {
		if v.PodUID == pod.UID && v.McKube != nil {
			group = append(group, v)
		}
	}
	slices.SortFunc(group, func(a, b ServerView) int { return choosesBefore(a, b, own.Granularity) })
	return own, group
}

// roomiest are the nodes but one that have a core which may admit the server, those with the most left first.
func (s *Snapshot) roomiest(but *NodeView, server rt.Server) []*NodeView {
	type room struct {
		node *NodeView
		free rt.PPM
	}
	var list []room
	for n := range s.Nodes() {
		if n.Name == but.Name || !n.takesNew() {
			continue
		}
		most := rt.PPM(-1)
		for i := range n.Cores {
			c := &n.Cores[i]
			kind := class{policy: c.Policy, reserve: c.EscalationReserve, granularity: c.Granularity}
			if need, refused := s.needs(server, kind); refused == "" && c.Free >= need {
				most = max(most, c.Free)
			}
		}
		if most >= 0 {
			list = append(list, room{n, most})
		}
	}
	slices.SortFunc(list, func(a, b room) int { return cmp.Or(cmp.Compare(b.free, a.free), cmp.Compare(a.node.Name, b.node.Name)) })
	out := make([]*NodeView, len(list))
	for i, r := range list {
		out[i] = r.node
	}
	return out
}

// spread puts each server on the core that has the most left and admits it, beside what comes there already.
func (n *NodeView) spread(group []ServerView, taken map[int][]rt.Server) (map[string]int, bool) {
	loads := make([]rt.Load, len(n.Cores))
	for i := range n.Cores {
		loads[i] = n.Claims(&n.Cores[i])
		loads[i].Servers = append(slices.Clip(loads[i].Servers), taken[n.Cores[i].ID]...)
	}
	out := map[string]int{}
	for _, v := range group {
		best, most := -1, rt.PPM(0)
		for i, load := range loads {
			if verdict := rt.Admit(load.Core, load.Servers, v.Server); verdict.Admitted && (best < 0 || verdict.Free() > most) {
				best, most = i, verdict.Free()
			}
		}
		if best < 0 {
			return nil, false
		}
		loads[best].Servers = append(loads[best].Servers, v.Server)
		out[v.ID] = loads[best].ID
	}
	return out, true
}
