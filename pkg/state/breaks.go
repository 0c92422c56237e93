package state

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Breaks lists the servers of a node that would find no core elsewhere if the node went away, all of
// them together: what one takes, the next does not have. The most critical choose first, then the
// largest. Containers of one pod go together.
func (s *Snapshot) Breaks(node string) []ServerView {
	n, ok := s.NodeView(node)
	if !ok {
		return nil
	}
	move := relocation{snapshot: s, from: node, taken: map[string]map[int][]rt.Server{}}
	var broken []ServerView
	for _, group := range leaving(n) {
		if _, ok := move.place(group); !ok {
			broken = append(broken, group...)
		}
	}
	slices.SortFunc(broken, func(a, b ServerView) int { return cmp.Compare(a.ID, b.ID) })
	return broken
}

// leaving are the node's governed servers, pod by pod, in the order in which they choose.
func leaving(n *NodeView) [][]ServerView {
	pods := map[types.UID][]ServerView{}
	for _, v := range n.Servers {
		if v.McKube != nil {
			pods[v.PodUID] = append(pods[v.PodUID], v)
		}
	}
	var out [][]ServerView
	for _, group := range pods {
		slices.SortFunc(group, func(a, b ServerView) int { return choosesBefore(a, b, n.Granularity) })
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b []ServerView) int { return choosesBefore(a[0], b[0], n.Granularity) })
	return out
}

func choosesBefore(a, b ServerView, granularity int64) int {
	return cmp.Or(cmp.Compare(b.Criticality, a.Criticality), cmp.Compare(b.Charge(granularity), a.Charge(granularity)), cmp.Compare(a.ID, b.ID))
}

// relocation moves pods off a node, in thought.
type relocation struct {
	snapshot *Snapshot
	from     string
	taken    map[string]map[int][]rt.Server // by node and core: what was moved there
}

// place moves the servers of a pod to the first node that has room for all, looking at cores by best
// fit for the first of them.
func (r *relocation) place(group []ServerView) (node string, ok bool) {
	tried := map[string]bool{r.from: true}
	for _, shelf := range r.snapshot.index.classes {
		need, reason := r.snapshot.needs(group[0].Server, shelf.class)
		if reason != "" {
			continue
		}
		for key := range shelf.free.from(byBandwidth{ppm: bounded(need)}) {
			if tried[key.node.name] {
				continue
			}
			if r.placeOn(key.node.name, group) {
				return key.node.name, true
			}
			tried[key.node.name] = true
		}
	}
	return "", false
}

// placeOn moves all servers of the pod to a node, or none.
func (r *relocation) placeOn(node string, group []ServerView) bool {
	n, ok := r.snapshot.NodeView(node)
	if !ok {
		return false
	}
	if pod, ok := r.snapshot.Pod(group[0].PodUID); ok {
		if accepted, _ := r.snapshot.Accepts(n, pod); !accepted {
			return false
		}
	}
	loads := r.loads(n)
	chosen := make([]int, len(group))
	for i, v := range group {
		core, _, ok := rt.BestCore(loads, v.Server)
		if !ok {
			return false
		}
		chosen[i] = core
		at := slices.IndexFunc(loads, func(l rt.Load) bool { return l.ID == core })
		loads[at].Servers = append(loads[at].Servers, v.Server)
	}
	if r.taken[node] == nil {
		r.taken[node] = map[int][]rt.Server{}
	}
	for i, core := range chosen {
		r.taken[node][core] = append(r.taken[node][core], group[i].Server)
	}
	return true
}

// loads are the node's cores in the witness packing, with what was moved there.
func (r *relocation) loads(n *NodeView) []rt.Load {
	out := make([]rt.Load, len(n.Cores))
	for i := range n.Cores {
		out[i] = n.Claims(&n.Cores[i])
		out[i].Servers = append(out[i].Servers, r.taken[n.Name][out[i].ID]...)
	}
	return out
}
