package state

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Breaks lists the servers of a node that would find no core elsewhere if the node went away, all of
// them together: what one takes, the next does not have. The most critical choose first, then the
// largest. Containers of one pod go together.
func (s *Snapshot) Breaks(node string) []ServerView {
	return s.BreaksAll([]string{node}, nil, nil)
}

// Room tells whether a node has what a pod asks for beside cores, and gives the pod that, if so. It is asked when cores were found.
type Room func(pod types.UID, node string) bool

// BreaksAll is Breaks for nodes that go away at once. Pods for which elsewhere is true have room of their own on nodes that are
// still to come; FitsNew decides about these. Nodes that others are closing already accept no pods, and what runs there has
// chosen before. room may be nil: there is enough.
func (s *Snapshot) BreaksAll(nodes []string, elsewhere map[types.UID]bool, room Room) []ServerView {
	move := relocation{snapshot: s, room: room, from: map[string]bool{}, taken: map[string]map[int][]rt.Server{}}
	for _, name := range nodes {
		move.from[name] = true
	}
	before := s.closing(move.from)
	for _, n := range before {
		move.from[n.Name] = true
	}
	for _, group := range leaving(s.granularity, before) {
		move.place(group) // where it finds none, that is not for these nodes to answer for
	}
	var broken []ServerView
	for _, group := range leaving(s.granularity, s.named(nodes)) {
		if elsewhere[group[0].PodUID] {
			continue
		}
		if _, ok := move.place(group); !ok {
			broken = append(broken, group...)
		}
	}
	slices.SortFunc(broken, func(a, b ServerView) int { return cmp.Compare(a.ID, b.ID) })
	return broken
}

// FitsNew lists the servers of pods that would find no core on a new node of these cores, all of them together.
func (s *Snapshot) FitsNew(cores []rt.Core, pods []types.UID) (broken []ServerView) {
	loads := make([]rt.Load, len(cores))
	for i, c := range cores {
		c.Granularity = max(c.Granularity, s.granularity)
		loads[i] = rt.Load{Core: c}
	}
	var groups [][]ServerView
	for _, uid := range pods {
		if pod, ok := s.Pod(uid); ok && len(pod.servers()) > 0 {
			groups = append(groups, pod.servers())
		}
	}
	inOrder(groups, s.granularity)
	for _, group := range groups {
		if chosen, ok := s.choose(loads, group); ok {
			for i, at := range chosen {
				loads[at].Servers = append(loads[at].Servers, group[i].Server)
			}
			continue
		}
		broken = append(broken, group...)
	}
	return broken
}

// choose finds a load for each server, without changing any. As the scheduler's selectors do, it leaves out cores that
// enforce budgets too late or do not pay for the raise.
func (s *Snapshot) choose(loads []rt.Load, group []ServerView) (at []int, ok bool) {
	loads = slices.Clone(loads)
	at = make([]int, len(group))
	for i, v := range group {
		suitable := slices.DeleteFunc(slices.Clone(loads), func(l rt.Load) bool {
			_, reason := s.needs(v.Server, class{policy: l.Policy, reserve: l.EscalationReserve, granularity: l.Granularity})
			return reason != ""
		})
		core, _, ok := rt.BestCore(suitable, v.Server)
		if !ok {
			return nil, false
		}
		at[i] = slices.IndexFunc(loads, func(l rt.Load) bool { return l.ID == core })
		loads[at[i]].Servers = append(slices.Clip(loads[at[i]].Servers), v.Server)
	}
	return at, true
}

// closing are the nodes, but for these, that are being deleted or that Karpenter is about to delete.
func (s *Snapshot) closing(but map[string]bool) (out []*NodeView) {
	for n := range s.Nodes() {
		disrupted := slices.ContainsFunc(n.taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
		if !but[n.Name] && (n.Deleting || disrupted) {
			out = append(out, n)
		}
	}
	return out
}

func (s *Snapshot) named(nodes []string) (out []*NodeView) {
	for _, name := range nodes {
		if n, ok := s.NodeView(name); ok {
			out = append(out, n)
		}
	}
	return out
}

// leaving are the governed servers of the nodes, pod by pod, in the order in which they choose.
func leaving(granularity int64, nodes []*NodeView) [][]ServerView {
	pods := map[types.UID][]ServerView{}
	for _, n := range nodes {
		granularity = max(granularity, n.Granularity)
		for _, v := range n.Servers {
			if v.McKube != nil {
				pods[v.PodUID] = append(pods[v.PodUID], v)
			}
		}
	}
	out := slices.Collect(maps.Values(pods))
	inOrder(out, granularity)
	return out
}

// inOrder sorts pods, and the servers of each, as they choose.
func inOrder(pods [][]ServerView, granularity int64) {
	for _, group := range pods {
		slices.SortFunc(group, func(a, b ServerView) int { return choosesBefore(a, b, granularity) })
	}
	slices.SortFunc(pods, func(a, b []ServerView) int { return choosesBefore(a[0], b[0], granularity) })
}

// servers are the pod's governed containers, as views that are nowhere yet.
func (p *PodView) servers() (out []ServerView) {
	for _, g := range p.Governed {
		if g.Err == nil {
			out = append(out, p.server(g))
		}
	}
	return out
}

func choosesBefore(a, b ServerView, granularity int64) int {
	return cmp.Or(cmp.Compare(b.Criticality, a.Criticality), cmp.Compare(b.Charge(granularity), a.Charge(granularity)), cmp.Compare(a.ID, b.ID))
}

// relocation moves pods off nodes, in thought.
type relocation struct {
	snapshot *Snapshot
	room     Room
	from     map[string]bool
	taken    map[string]map[int][]rt.Server // by node and core: what was moved there
}

// place moves the servers of a pod to the first node that has room for all, looking at cores by best
// fit for the first of them.
func (r *relocation) place(group []ServerView) (node string, ok bool) {
	tried := map[string]bool{}
	maps.Copy(tried, r.from)
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
	if r.room != nil && !r.room(group[0].PodUID, node) {
		return false
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
