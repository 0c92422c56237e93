package state

import (
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

// Destination finds a node beside the pod's own with a core for each of its governed containers, by best fit for
// the one that chooses first, as the scheduler's placements are judged. Filters say which nodes will do beside
// those that accept the pod. ok is false without governed containers, and when no node will do.
func (s *Snapshot) Destination(uid types.UID, accept ...NodeFilter) (d Destination, ok bool) {
	pod, found := s.Pod(uid)
	if !found {
		return Destination{}, false
	}
	n, found := s.NodeView(pod.NodeName)
	if !found {
		return Destination{}, false
	}
	var group []ServerView
	for _, v := range n.Servers {
		if v.PodUID == uid && v.McKube != nil {
			group = append(group, v)
		}
	}
	if len(group) == 0 {
		return Destination{}, false
	}
	slices.SortFunc(group, func(a, b ServerView) int { return choosesBefore(a, b, n.Granularity) })
	move := relocation{snapshot: s, from: map[string]bool{n.Name: true}, taken: map[string]map[int][]rt.Server{}, accept: accept}
	node, ok := move.place(group)
	if !ok {
		return Destination{}, false
	}
	d = Destination{Node: node, Cores: map[string]int{}}
	for core, servers := range move.taken[node] {
		for _, server := range servers {
			d.Cores[server.ID] = core
		}
	}
	return d, true
}
