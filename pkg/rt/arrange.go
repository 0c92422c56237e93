package rt

import (
	"cmp"
	"maps"
	"slices"
)

// Placement maps a server's ID to the ID of its core.
type Placement map[string]int

// NoCore stands for "on no core".
const NoCore = -1

// Node is what Arrange places.
type Node struct {
	Cores   []Core
	Servers []Server
	// Current is where the servers are; entries of servers or cores that are gone are ignored.
	Current Placement
	// Witness is where the scheduler allocated them: a packing that passes on every core.
	Witness Placement
	// Held servers belong to actions in progress, so Arrange does not move them for another server.
	Held map[string]bool
}

// Why a server's core changes.
const (
	// ChangePlaced means: the server had no core.
	ChangePlaced = "Placed"
	// ChangeDisplaced means: a more critical server needs its room.
	ChangeDisplaced = "Displaced"
	// ChangeReturned means: it goes back to the core of its claim, so that others can have theirs.
	ChangeReturned = "Returned"
	// ChangeLost means: its core is gone or no longer passes the test with it.
	ChangeLost = "Lost"
	// ChangeRefused means: no core passes the test with it.
	ChangeRefused = "Refused"
)

// Change is a server that goes from one core to another; NoCore stands for none.
type Change struct {
	ID       string
	From, To int
	Reason   string
}

// Arrange packs a node's servers onto its cores, so that every core passes Holds.
//
// Servers stay where they are as long as their core passes. Where it does not, the fewest of the least
// critical lose it. Then servers without a core are placed, the most critical first: on a preferred
// core that admits it, or that does when the fewest servers of strictly lower criticality move to other
// cores; else on its witness core, unless it is WorstFit; else on the best. Else Arrange does whichever moves fewer
// servers: it displaces less critical ones on any core, or returns servers to their witness cores, core by core until
// all pass. When the witness packing passes and no server is held, no server that it holds is refused. Nothing else ever
// moves a server, and only in a return does one move for another of equal or lower criticality: to where its
// claim is. Arrange moves held servers for no other: a server that needs that is refused for as long.
//
// Refused are servers for which there is no core; with the verdict of the nearest one.
func Arrange(in Node) (placed Placement, changes []Change, refused map[string]Verdict) {
	a := newArrangement(in)
	a.keep()
	// Only the less critical are pushed out without a place to go, so each round is about lower ones.
	for range High + 1 {
		for _, s := range a.homeless() {
			a.place(s)
		}
	}
	return a.at, a.changes(), a.refused
}

type arrangement struct {
	in      Node
	servers map[string]Server
	cores   map[int]Core
	at      Placement
	reasons map[string]string
	refused map[string]Verdict
}

// newArrangement leaves servers that are not valid, and further ones with the same ID, out.
func newArrangement(in Node) *arrangement {
	a := &arrangement{
		in: in, servers: map[string]Server{}, cores: map[int]Core{},
		at: Placement{}, reasons: map[string]string{}, refused: map[string]Verdict{},
	}
	for _, core := range in.Cores {
		a.cores[core.ID] = core
	}
	for _, s := range in.Servers {
		_, twice := a.servers[s.ID]
		switch {
		case twice:
		case s.Validate() != nil:
			a.refused[s.ID] = Verdict{Test: TestT1, Need: s.Charge(0)}.refuse(ReasonInvalidServer, s.ID)
		default:
			a.servers[s.ID] = s
			delete(a.refused, s.ID)
		}
	}
	return a
}

// keep leaves servers on their cores, but for those that must go so that each core passes.
func (a *arrangement) keep() {
	for id, core := range a.in.Current {
		_, known := a.cores[core]
		if _, exists := a.servers[id]; exists && known {
			a.at[id] = core
		} else if exists {
			a.reasons[id] = ChangeLost
		}
	}
	for _, load := range a.loads(a.at) {
		for _, s := range excess(load) {
			delete(a.at, s.ID)
			a.reasons[s.ID] = ChangeLost
		}
	}
}

// excess are the fewest of the least critical servers without which the load passes.
func excess(load Load) []Server {
	holds := removal{fits: func(gone []Server) bool { return Holds(load.Core, remove(load.Servers, gone)).Admitted }}
	for most := Low; most < High; most++ {
		upTo := slices.DeleteFunc(slices.Clone(load.Servers), func(s Server) bool { return s.Criticality > most })
		if gone, ok := cheapest(upTo, holds, load.Granularity); ok {
			return gone
		}
	}
	gone, _ := cheapest(load.Servers, holds, load.Granularity)
	return gone
}

// homeless are servers without a core that have not been refused, the most critical and largest first.
func (a *arrangement) homeless() []Server {
	var out []Server
	for id, s := range a.servers {
		_, placed := a.at[id]
		if _, refused := a.refused[id]; !placed && !refused {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(s, t Server) int {
		return cmp.Or(cmp.Compare(t.Criticality, s.Criticality), cmp.Compare(t.Charge(0), s.Charge(0)), cmp.Compare(s.ID, t.ID))
	})
	return out
}

// place finds a core for a server, or refuses it.
func (a *arrangement) place(s Server) {
	loads := a.loads(a.at)
	best, v, ok := BestCore(loads, s)
	preferred := ok && slices.Contains(s.Preferred, best)
	if !preferred {
		if moved, found := a.displace(loads, s, s.Preferred); found {
			a.apply(moved, ChangeDisplaced)
			return
		}
	}
	if w, found := a.witness(s.ID); found && ok && !preferred && s.Fit != WorstFit && Admit(a.cores[w], serversOn(loads, w), s).Admitted {
		best = w
	}
	if ok {
		a.at[s.ID] = best
		return
	}
	a.makeRoom(loads, s, v)
}

// makeRoom moves others so that the server has a core, or refuses it with the verdict.
func (a *arrangement) makeRoom(loads []Load, s Server, v Verdict) {
	displaced, canDisplace := a.displace(loads, s, slices.Sorted(maps.Keys(a.cores)))
	returned, canReturn := a.restore(s)
	switch {
	case canDisplace && (!canReturn || len(displaced) <= len(returned)):
		a.apply(displaced, ChangeDisplaced)
	case canReturn:
		a.apply(returned, ChangeReturned)
	default:
		a.refused[s.ID] = v
	}
}

// apply moves servers; those moved to NoCore are homeless again.
func (a *arrangement) apply(moves Placement, reason string) {
	for id, core := range moves {
		if _, had := a.at[id]; had && a.reasons[id] != ChangeLost {
			a.reasons[id] = reason
		}
		if core == NoCore {
			delete(a.at, id)
			continue
		}
		a.at[id] = core
	}
}

// witness is the core of the server's claim, if there still is one.
func (a *arrangement) witness(id string) (int, bool) {
	core, ok := a.in.Witness[id]
	if _, known := a.cores[core]; !ok || !known {
		return NoCore, false
	}
	return core, true
}

// loads are all cores with the servers that a placement puts there, both in a fixed order.
func (a *arrangement) loads(at Placement) []Load {
	on := map[int][]Server{}
	for _, id := range slices.Sorted(maps.Keys(at)) {
		on[at[id]] = append(on[at[id]], a.servers[id])
	}
	out := make([]Load, 0, len(a.cores))
	for _, id := range slices.Sorted(maps.Keys(a.cores)) {
		out = append(out, Load{Core: a.cores[id], Servers: on[id]})
	}
	return out
}

func (a *arrangement) changes() []Change {
	var out []Change
	for _, id := range slices.Sorted(maps.Keys(a.servers)) {
		from, was := a.in.Current[id]
		if !was {
			from = NoCore
		}
		to, is := a.at[id]
		switch {
		case is && from == to:
		case !is && was:
			out = append(out, Change{ID: id, From: from, To: NoCore, Reason: ChangeRefused})
		case is:
			out = append(out, Change{ID: id, From: from, To: to, Reason: cmp.Or(a.reasonOf(id, was), ChangePlaced)})
		}
	}
	return out
}

// reasonOf is why a server that had a core moves; empty for one that had none.
func (a *arrangement) reasonOf(id string, was bool) string {
	if !was {
		return ""
	}
	return a.reasons[id]
}
