package state

import (
	"iter"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// NodeFilter says whether a node will do.
type NodeFilter func(*NodeView) bool

// BestCore finds the core in the cluster for one more claim: a preferred core before any other, then
// the one with the least bandwidth left that admits the server (at equal gaps the nodes are in a fixed order,
// then the lowest core), so that large gaps stay for large servers. Cores are found by index. When no core will do, the
// gates say why, class by class; there are gates exactly when there is no core.
func (s *Snapshot) BestCore(server rt.Server, accept ...NodeFilter) (Candidate, []Gate) {
	look := search{snapshot: s, server: server, accept: accept}
	for _, number := range server.Preferred {
		if best, ok := look.preferred(int32(number)); ok {
			return best, nil
		}
	}
	if best, ok := look.any(); ok {
		return best, nil
	}
	return Candidate{Core: rt.NoCore}, []Gate{s.fullGate(server)}
}

// search is one question to the index.
type search struct {
	snapshot *Snapshot
	server   rt.Server
	accept   []NodeFilter
	judged   map[string]bool // what accept said of a node
}

// needs is what a core of the class must have free. ok is false when no core of the class will do: the
// scheduler's selectors leave out cores that enforce budgets too late or do not pay for the raise.
func (s *Snapshot) needs(server rt.Server, c class) (need rt.PPM, reason string) {
	switch {
	case server.Validate() != nil:
		return 0, rt.ReasonInvalidServer
	case c.granularity > s.granularity:
		return server.Charge(c.granularity), ReasonGranularityTooCoarse
	case server.Limited && server.Step() > c.reserve:
		return server.Charge(c.granularity), rt.ReasonReserveTooSmall
	case c.policy == rt.EDFVirtualDeadlines:
		return 0, "" // its test may pass beyond the sum of the charges
	default:
		return server.Charge(c.granularity), ""
	}
}

func (q *search) any() (Candidate, bool) {
	return q.best(func(shelf *shelf, need int32) iter.Seq[coreRef] {
		return func(yield func(coreRef) bool) {
			for key := range shelf.free.from(byBandwidth{ppm: need}) {
				if !yield(coreRef(key)) {
					return
				}
			}
		}
	})
}

func (q *search) preferred(number int32) (Candidate, bool) {
	return q.best(func(shelf *shelf, need int32) iter.Seq[coreRef] {
		return func(yield func(coreRef) bool) {
			for key := range shelf.numbers.from(byNumber{ppm: need, core: number}) {
				if key.core != number || !yield(coreRef(key)) {
					return
				}
			}
		}
	})
}

// best is the first admitting core of each class, and of those the one with the least left.
func (q *search) best(cores func(shelf *shelf, need int32) iter.Seq[coreRef]) (best Candidate, found bool) {
	var least coreRef
	for _, shelf := range q.snapshot.index.classes {
		need, reason := q.snapshot.needs(q.server, shelf.class)
		if reason != "" {
			continue
		}
		for ref := range cores(shelf, bounded(need)) {
			if found && byBandwidth(ref).compare(byBandwidth(least)) >= 0 {
				break
			}
			if v, ok := q.admits(ref); ok {
				best, least, found = Candidate{Node: ref.node.name, Core: int(ref.core), Verdict: v}, ref, true
				break
			}
		}
	}
	return best, found
}

// admits asks the test itself: the index only leads to the cores that may pass.
func (q *search) admits(ref coreRef) (rt.Verdict, bool) {
	n, ok := q.snapshot.NodeView(ref.node.name)
	if !ok || !q.accepts(n) {
		return rt.Verdict{}, false
	}
	core, ok := n.Core(int(ref.core))
	if !ok {
		return rt.Verdict{}, false
	}
	v := rt.Admit(core.Core, n.Claims(core).Servers, q.server)
	return v, v.Admitted
}

func (q *search) accepts(n *NodeView) bool {
	if len(q.accept) == 0 {
		return true
	}
	if q.judged == nil {
		q.judged = map[string]bool{}
	}
	ok, known := q.judged[n.Name]
	if !known {
		ok = !slices.ContainsFunc(q.accept, func(f NodeFilter) bool { return !f(n) })
		q.judged[n.Name] = ok
	}
	return ok
}

// WithFit is a server with the node's own rule for choosing a core, where its McKube has none.
func (n *NodeView) WithFit(server rt.Server) rt.Server {
	if server.Fit == "" {
		server.Fit = rt.Fit(n.labels[v1alpha1.LabelCoreSelection]) // what is no rule is BestFit
	}
	return server
}

// BestCoreOn finds the core of a node for a container that runs there without a claim: one that passes
// the test in both packings, so that the scheduler can count it and it can move there at once. There
// are gates exactly when there is none.
func (s *Snapshot) BestCoreOn(node string, server rt.Server) (Candidate, []Gate) {
	none := Candidate{Node: node, Core: rt.NoCore}
	n, ok := s.NodeView(node)
	if !ok || len(n.Cores) == 0 {
		return none, []Gate{noCoresGate(node)}
	}
	var loads []rt.Load
	var refused []Number
	for i := range n.Cores {
		core := &n.Cores[i]
		claims := n.Claims(core)
		if v := rt.Admit(core.Core, n.Runs(core).Servers, server); !v.Admitted {
			refused = append(refused, numberOf(n.Name, core.ID, v))
			continue
		}
		loads = append(loads, claims)
	}
	id, v, ok := rt.BestCore(loads, n.WithFit(server))
	if ok {
		return Candidate{Node: node, Core: id, Verdict: v}, nil
	}
	for _, load := range loads {
		refused = append(refused, numberOf(n.Name, load.ID, rt.Admit(load.Core, load.Servers, server)))
	}
	slices.SortFunc(refused, func(a, b Number) int { return a.Core - b.Core })
	return none, []Gate{nodeFullGate(n, server, refused)}
}
