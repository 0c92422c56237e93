package rtruntime

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// mostSteps and mostPriced bound the search on one node for pods with several containers: how often a container is tried on a
	// core, and how many ways to place all of them are priced.
	mostSteps  = 1_024
	mostPriced = 32
)

// search looks for the cheapest room on a node. One container goes where that costs least. Several are tried on the cores in
// order of what each would cost by itself, which together they cannot cost less than.
type search struct {
	scene
	node  *state.NodeView
	wants []want
	loads []rt.Load
	// pods may go, by their UIDs.
	pods map[types.UID]displaced
	// tries are, for each of the wants, the cores that could take it, the cheapest first.
	tries         [][]try
	steps, priced int
	best          room
	found         bool
}

// displaced is a pod that may go, as critical as its most critical container.
type displaced struct {
	rt.Candidate
	criticality rt.Criticality
}

// try is a core, by its place in the loads, and what it costs there to make room for one container alone.
type try struct {
	at   int
	gone []rt.Candidate
	loss int64
}

// on is the cheapest room on a node.
func (s scene) on(n *state.NodeView) (room, bool) {
	if ok, _ := s.snapshot.Accepts(n, s.pod); !ok || !n.Offered || s.boundElsewhere(n.Name) {
		return room{}, false
	}
	q := &search{scene: s, node: n, wants: wanted(s.pod, s.snapshot.Granularity()), loads: s.loads(n), pods: s.candidates(n)}
	if !q.tryEach() {
		return room{}, false
	}
	if len(q.wants) == 1 {
		t := q.tries[0][0]
		return q.room([]int{t.at}, t.gone), true
	}
	q.assign(make([]int, 0, len(q.wants)), 0)
	return q.best, q.found
}

// candidates are the pods on a node that may go, with the price of all their containers there.
func (s scene) candidates(n *state.NodeView) map[types.UID]displaced {
	if s.keepAll {
		return nil
	}
	out := map[types.UID]displaced{}
	for i := range n.Servers {
		v := &n.Servers[i]
		pod, ok := s.snapshot.Pod(v.PodUID)
		if !ok || v.McKube == nil || s.spared[v.PodUID] || s.keeps(v.PodUID) {
			continue
		}
		c, known := out[v.PodUID]
		if !known {
			c = displaced{rt.Candidate{ID: string(v.PodUID)}, criticalityOf(pod)}
		}
		c.Loss += rt.Loss(v.Criticality, v.Charge(n.Granularity))
		c.Size += v.Charge(n.Granularity)
		out[v.PodUID] = c
	}
	return out
}

// tryEach prices each container by itself; false when no core takes one of them.
func (q *search) tryEach() bool {
	for _, w := range q.wants {
		var tries []try
		for at := range q.loads {
			gone, ok := rt.LeastLossAmong(q.below(at, w.Criticality), q.may, func(gone []rt.Candidate) bool { return q.holds([]want{w}, at, gone) })
			if ok {
				tries = append(tries, try{at, gone, lossOf(gone)})
			}
		}
		if len(tries) == 0 {
			return false
		}
		slices.SortStableFunc(tries, func(a, b try) int { return cmp.Compare(a.loss, b.loss) })
		q.tries = append(q.tries, tries)
	}
	return true
}

// below are the pods on a core that may go for a container of a criticality.
func (q *search) below(at int, c rt.Criticality) []rt.Candidate {
	var out []rt.Candidate
	for _, o := range q.loads[at].Servers {
		pod, ok := q.podOf(o.ID)
		if ok && pod.criticality < c && !slices.Contains(out, pod.Candidate) {
			out = append(out, pod.Candidate)
		}
	}
	return out
}

// podOf is the pod of a server, if it may go.
func (q *search) podOf(id string) (displaced, bool) {
	v, ok := q.node.Server(id)
	if !ok || v.McKube == nil {
		return displaced{}, false
	}
	pod, ok := q.pods[v.PodUID]
	return pod, ok
}

// holds tells whether a core holds containers once some pods have gone, by its test and by the scheduler's sum.
func (q *search) holds(comers []want, at int, gone []rt.Candidate) bool {
	load := q.loads[at]
	rest := make([]rt.Server, 0, len(load.Servers)+len(comers))
	for _, o := range load.Servers {
		if pod, ok := q.podOf(o.ID); !ok || !slices.Contains(gone, pod.Candidate) {
			rest = append(rest, o)
		}
	}
	for _, w := range comers {
		if !rt.Admit(load.Core, rest, w.Server).Admitted || !scheduled(rt.Load{Core: load.Core, Servers: rest}, w.Server) {
			return false
		}
		rest = append(rest, w.Server)
	}
	return true
}

// assign tries the next container on each core. What is placed so far costs no less than bound.
func (q *search) assign(at []int, bound int64) {
	if len(at) == len(q.wants) {
		q.price(at)
		return
	}
	for _, t := range q.tries[len(at)] {
		if q.steps++; q.steps > mostSteps || q.priced > mostPriced || q.found && max(bound, t.loss) >= q.best.Loss {
			return
		}
		next := append(at, t.at)
		if q.holds(q.comers(next, t.at), t.at, q.all()) {
			q.assign(next, max(bound, t.loss))
		}
	}
}

// comers are the containers that are placed on a core.
func (q *search) comers(at []int, core int) []want {
	var out []want
	for i, c := range at {
		if c == core {
			out = append(out, q.wants[i])
		}
	}
	return out
}

// all are the pods that may go for any container of the pod.
func (q *search) all() []rt.Candidate {
	var out []rt.Candidate
	for _, pod := range q.pods {
		if pod.criticality < criticalityOf(q.pod) {
			out = append(out, pod.Candidate)
		}
	}
	return out
}

// price finds the cheapest pods for all containers together on the cores that were chosen.
func (q *search) price(at []int) {
	q.priced++
	may := map[rt.Candidate]bool{}
	for i, core := range at {
		for _, c := range q.below(core, q.wants[i].Criticality) {
			may[c] = true
		}
	}
	gone, ok := rt.LeastLossAmong(slices.Collect(maps.Keys(may)), q.may, func(gone []rt.Candidate) bool {
		return !slices.ContainsFunc(at, func(core int) bool { return !q.holds(q.comers(at, core), core, gone) })
	})
	if !ok {
		return
	}
	if r := q.room(at, gone); !q.found || r.costs(q.best) < 0 {
		q.best, q.found = r, true
	}
}

// room is that on cores without some pods.
func (q *search) room(at []int, gone []rt.Candidate) room {
	r := room{Node: q.node.Name, Cores: make([]int, len(q.pod.Governed)), Loss: lossOf(gone)}
	for i, g := range q.pod.Governed {
		r.Cores[i] = rt.NoCore
		if g.Claim.Allocated() {
			r.Cores[i] = g.Claim.Core
		}
	}
	for i, core := range at {
		r.Cores[q.wants[i].index] = q.loads[core].ID
	}
	for _, c := range gone {
		r.Victims = append(r.Victims, types.UID(c.ID))
	}
	for _, v := range q.node.Servers {
		if slices.Contains(r.Victims, v.PodUID) {
			r.Servers = append(r.Servers, v)
		}
	}
	return r
}

func lossOf(gone []rt.Candidate) int64 {
	total := int64(0)
	for _, c := range gone {
		total += c.Loss
	}
	return total
}
