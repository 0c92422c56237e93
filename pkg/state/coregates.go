package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// checkCore says which core it was given or, before that, what every node and class of cores answers.
func checkCore(s *Snapshot, pod *PodView, g Governed) Gate {
	if g.Claim.Allocated() {
		return s.given(g)
	}
	if pod.NodeName != "" {
		best, gates := s.BestCoreOn(pod.NodeName, g.Server)
		if len(gates) > 0 {
			gates[0].Message += "; re-create the pod so that it finds another node"
			return gates[0]
		}
		return passed(GateCore, "core %d of node %s takes it (%s)", best.Core, best.Node, best.Verdict.Test)
	}
	numbers := s.answers(pod, g.Server)
	best, gates := s.BestCore(g.Server, func(n *NodeView) bool { ok, _ := s.Accepts(n, pod); return ok })
	if len(gates) > 0 {
		gate := s.nowhere(g.Server, numbers)
		gate.Numbers = numbers
		return gate
	}
	gate := passed(GateCore, "core %d of node %s would take it: it needs %s and %s is free (%s)", best.Core, best.Node,
		percent(best.Verdict.Need), percent(best.Verdict.Free()), best.Verdict.Test)
	gate.Numbers = numbers
	return gate
}

// given is the core of the claim, and what the test says of it as it is now.
func (s *Snapshot) given(g Governed) Gate {
	gate := passed(GateCore, "claim %s is on core %d of node %s and takes %s of it", g.Claim.Name, g.Claim.Core, g.Claim.Node, percent(g.Claim.Claimed))
	n, ok := s.NodeView(g.Claim.Node)
	if !ok {
		return gate
	}
	core, ok := n.Core(g.Claim.Core)
	if !ok {
		return closed(GateCore, rt.ReasonNoCore, "claim %s is on core %d of node %s, which the node no longer offers; re-create the pod", g.Claim.Name, g.Claim.Core, g.Claim.Node)
	}
	v := rt.Admit(core.Core, n.Claims(core).Servers, g.Server)
	gate.Numbers = []Number{numberOf(n.Name, core.ID, v)}
	switch {
	case v.Admitted:
	case core.Policy == rt.FixedPriority:
		return n.givenByPriority(gate, g, v)
	case v.Reason == rt.ReasonReserveTooSmall && v.Server != g.Server.ID:
		// Another container needs more than the core keeps now. Its own gate reports that, not this one.
	case v.Reason == rt.ReasonReserveTooSmall:
		gate.OK, gate.Reason = false, v.Reason
		gate.Message += fmt.Sprintf(", but its raise takes %s of it, and the core keeps %s for raises", percent(g.Server.Step()), percent(core.EscalationReserve))
	default:
		gate.OK, gate.Reason = false, v.Reason
		gate.Message += fmt.Sprintf(", but its settings now need %s and others hold %s of %s", percent(v.Need), percent(v.Used), percent(v.Limit))
	}
	return gate
}

// givenByPriority is the gate of a claim whose core does not pass with all claims on it. Under fixed priorities
// that is no surprise: the scheduler adds up bandwidths, which is less than the response-time test asks. What
// counts is whether a core of the node takes the container beside what runs there.
func (n *NodeView) givenByPriority(gate Gate, g Governed, v rt.Verdict) Gate {
	for i := range n.Cores {
		if now := rt.Admit(n.Cores[i].Core, n.Runs(&n.Cores[i]).Servers, g.Server); now.Admitted {
			gate.Message += fmt.Sprintf("; core %d takes it beside what runs there (%s)", n.Cores[i].ID, now.Test)
			gate.Numbers = append(gate.Numbers, numberOf(n.Name, n.Cores[i].ID, now))
			return gate
		}
	}
	gate.OK, gate.Reason = false, v.Reason
	gate.Message += fmt.Sprintf(
		", and the claims there fit by their sum (%s and %s of %s), but node %s runs by fixed priorities (%s), where %s would get its budget too late (%s); re-create the pod so that it finds another node, or give its McKube a longer period or deadline",
		percent(v.Need), percent(v.Used), percent(v.Limit), n.Name, v.Test, n.nameOf(v.Server, g), v.Reason)
	if v.Need+v.Used > v.Limit {
		gate.Message = strings.Replace(gate.Message, "and the claims there fit by their sum", "and the claims there do not fit by their sum either", 1)
	}
	return gate
}

// nameOf is the container of a server as people call it.
func (n *NodeView) nameOf(id string, g Governed) string {
	s, ok := n.Server(id)
	if id == "" || id == g.Server.ID || !ok || s.Claimant() {
		return "it"
	}
	return fmt.Sprintf("container %s of pod %s/%s", s.Container, s.Namespace, s.Pod)
}

// answers asks every node, class of cores by class of cores, those that fit first, then those with the most room.
func (s *Snapshot) answers(pod *PodView, server rt.Server) []Number {
	var out []Number
	for n := range s.Nodes() {
		if len(n.Cores) == 0 {
			continue
		}
		accepted, why := s.Accepts(n, pod)
		if accepted && !n.Offered {
			accepted, why = false, "its agent publishes no cores"
		}
		for _, number := range s.classesOf(n, server) {
			if !accepted {
				number.OK, number.Reason, number.Detail = false, ReasonNodeRuledOut, why
			}
			out = append(out, number)
		}
	}
	slices.SortStableFunc(out, func(a, b Number) int { return a.distance() - b.distance() })
	return out
}

// distance orders answers: what fits, what is short of bandwidth, what is ruled out.
func (n Number) distance() int {
	switch {
	case n.OK:
		return 0
	case n.Detail == "":
		return 1 + int(max(0, n.Need-n.Free))
	default:
		return 1 + int(2*rt.OneCore)
	}
}

// classesOf is the best core of each class of the node's cores.
func (s *Snapshot) classesOf(n *NodeView, server rt.Server) []Number {
	type kind struct {
		class
		capacity rt.PPM
	}
	var kinds []kind
	found := map[kind]Number{}
	for i := range n.Cores {
		core := &n.Cores[i]
		k := kind{class{core.Policy, core.EscalationReserve, core.Granularity}, core.Capacity}
		next := numberOf(n.Name, core.ID, rt.Admit(core.Core, n.Claims(core).Servers, server))
		if _, reason := s.needs(server, k.class); reason != "" {
			next.OK, next.Reason = false, reason
		}
		if reason := next.Reason; reason == ReasonGranularityTooCoarse {
			next.Detail = fmt.Sprintf("it ends budgets up to %d us late, and claims allow %d us, as the controller's --rt-budget-granularity says", core.Granularity, s.granularity)
		} else if reason == rt.ReasonReserveTooSmall {
			next.Detail = fmt.Sprintf("escalation reserve %s of %s", percent(core.EscalationReserve), percent(server.Step()))
		}
		best, seen := found[k]
		if !seen {
			kinds = append(kinds, k)
		}
		next.Cores = best.Cores + 1
		if seen && (best.OK && !next.OK || best.OK == next.OK && best.Free >= next.Free) {
			best.Cores, next = next.Cores, best
			next.Cores = best.Cores
		}
		found[k] = next
	}
	out := make([]Number, len(kinds))
	for i, k := range kinds {
		out[i] = found[k]
	}
	return out
}

// nowhere sums up why no core will do.
func (s *Snapshot) nowhere(server rt.Server, numbers []Number) Gate {
	need := percent(server.Charge(s.granularity))
	if len(numbers) == 0 {
		return closed(GateCore, ReasonNoCores, "it needs %s of a core, and no node has real-time cores", need)
	}
	short, ruledOut := 0, map[string]int{}
	for _, n := range numbers {
		if n.Detail == "" {
			short++
		} else {
			ruledOut[n.Detail]++
		}
	}
	if short == 0 {
		return closed(GateCore, ReasonNoCoreFits, "it needs %s of a core, and every node with real-time cores is ruled out: %s", need, mostCommon(ruledOut))
	}
	nearest := numbers[0]
	return closed(GateCore, ReasonNoCoreFits, "it needs %s of one core; the nearest, core %d of node %s, has %s free of %s (%s, %s)",
		percent(nearest.Need), nearest.Core, nearest.Node, percent(nearest.Free), percent(nearest.Limit), nearest.Test, nearest.Reason)
}

func mostCommon(reasons map[string]int) string {
	var keys []string
	for k := range reasons {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if reasons[a] != reasons[b] {
			return reasons[b] - reasons[a]
		}
		return strings.Compare(a, b)
	})
	return keys[0]
}

// checkPreemption says how room is being made, or could be.
func checkPreemption(s *Snapshot, pod *PodView, g Governed) Gate {
	if g.Claim.Allocated() || pod.NodeName != "" {
		return Gate{}
	}
	accept := func(n *NodeView) bool { ok, _ := s.Accepts(n, pod); return ok }
	if _, gates := s.BestCore(g.Server, accept); len(gates) == 0 {
		return Gate{}
	}
	if p := pod.Preempting; p != nil {
		waits := ""
		if p.Waits != "" {
			waits = "; " + p.Waits
		}
		return closed(GatePreemption, ReasonMakingRoom, "room is being made on core %s of node %s: %s to leave by %s%s", numbersOf(p.Cores()), p.Node, s.podNamesOf(p), p.Deadline.UTC().Format("15:04:05 MST"), waits)
	}
	plan, ok := s.Victims(g.Server, accept)
	if !ok {
		return closed(GatePreemption, ReasonNoCoreFits, "no less critical containers could make room; it waits for a node to be opened")
	}
	var victims []string
	for _, v := range plan.Victims {
		victims = append(victims, fmt.Sprintf("%s/%s (%s)", v.Namespace, v.Pod, v.Criticality))
	}
	return closed(GatePreemption, ReasonRoomCanBeMade, "core %d of node %s would take it without %s; the controller evicts them when no node is being opened for it, and nothing else keeps it off that node", plan.Core, plan.Node, strings.Join(victims, ", "))
}

func numbersOf(cores []int) string {
	var out []string
	for _, c := range cores {
		out = append(out, strconv.Itoa(c))
	}
	return strings.Join(out, " and ")
}

func (s *Snapshot) podNamesOf(p *Preemption) string {
	var out []string
	for _, uid := range p.Victims {
		if pod, ok := s.Pod(uid); ok {
			out = append(out, pod.Key().String())
		}
	}
	if len(out) == 0 {
		return "its victims have left; nobody is"
	}
	return strings.Join(out, ", ")
}

// checkTogether: containers that each find a core must find them on one node.
func checkTogether(s *Snapshot, pod *PodView, _ Governed) Gate {
	var group []ServerView
	for _, g := range pod.Governed {
		if g.Err != nil || g.Claim.Allocated() || pod.NodeName != "" {
			return Gate{}
		}
		group = append(group, pod.server(g))
	}
	if len(group) < 2 || !s.eachFits(pod, group) {
		return Gate{}
	}
	move := relocation{snapshot: s, taken: map[string]map[int][]rt.Server{}}
	slices.SortFunc(group, func(a, b ServerView) int { return choosesBefore(a, b, s.granularity) })
	if node, ok := move.place(group); ok {
		return passed(GateTogether, "node %s has cores for all %d containers", node, len(group))
	}
	return closed(GateTogether, ReasonNoNodeFitsAll, "each of the %d containers finds a core, but no node has cores for all of them", len(group))
}

// eachFits: otherwise the gate of the container that finds no core says so.
func (s *Snapshot) eachFits(pod *PodView, group []ServerView) bool {
	accept := func(n *NodeView) bool { ok, _ := s.Accepts(n, pod); return ok }
	return !slices.ContainsFunc(group, func(v ServerView) bool {
		_, gates := s.BestCore(v.Server, accept)
		return len(gates) > 0
	})
}

func checkAgent(s *Snapshot, pod *PodView, _ Governed) Gate {
	n, ok := s.NodeView(pod.NodeName)
	switch {
	case !ok || n.RTNode == nil && !n.Stale:
		return closed(GateAgent, ReasonNoRTNode, "node %s has no RTNode: it has no agent, or the controller has not made it yet", pod.NodeName)
	case n.Stale:
		return closed(GateAgent, ReasonStaleRTNode, "RTNode %s belongs to an earlier node of that name; the controller replaces it", n.Name)
	case n.Agent == AgentSilent:
		return closed(GateAgent, ReasonAgentSilent, "the agent of node %s is silent; what it applied last stays in force", n.Name)
	case n.Agent == AgentUnknown:
		return passed(GateAgent, "the agent of node %s has not been judged yet", n.Name)
	default:
		return passed(GateAgent, "the agent of node %s is alive (%s, budgets end at most %d us late)", n.Name, n.Backend, n.Measured)
	}
}

func checkPlaced(s *Snapshot, pod *PodView, g Governed) Gate {
	n, _ := s.NodeView(pod.NodeName)
	v, ok := n.Server(g.Server.ID)
	if !ok || v.Physical == rt.NoCore {
		return closed(GatePlaced, ReasonNotPlaced, "the controller has not put it on a core of node %s yet", n.Name)
	}
	core, ok := n.Core(v.Physical)
	if !ok {
		return closed(GatePlaced, ReasonNotPlaced, "it was on core %d of node %s, which is gone", v.Physical, n.Name)
	}
	held := rt.Admit(core.Core, n.Runs(core).Servers, v.InForce())
	gate := passed(GatePlaced, "it runs on core %d; %s of %s of that core is promised (%s)", core.ID, percent(core.Placed), percent(core.Capacity), held.Test)
	gate.Numbers = []Number{numberOf(n.Name, core.ID, held)}
	return gate
}

func checkConfigured(s *Snapshot, pod *PodView, g Governed) Gate {
	n, _ := s.NodeView(pod.NodeName)
	v, _ := n.Server(g.Server.ID)
	switch a := v.Applied; {
	case a == nil:
		return closed(GateConfigured, ReasonNotConfigured, "the agent has not applied it yet")
	case a.Error != "":
		return closed(GateConfigured, ReasonRefusedByAgent, "the agent could not apply it: %s", a.Error)
	case a.PeriodUs != v.Spec.PeriodUs || !slices.Equal(a.Cores, v.Spec.Cores):
		return closed(GateConfigured, ReasonNotConfigured, "the agent still applies %d us in every %d us on cores %v", a.BudgetUs, a.PeriodUs, a.Cores)
	default:
		return passed(GateConfigured, "the agent read back %d us in every %d us (level %s); %d overruns, %d misses", a.BudgetUs, a.PeriodUs, a.Level, a.Overruns, a.Misses)
	}
}
