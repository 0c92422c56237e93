package state

import (
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Gate is one condition on the way of a pod to its cores. The list of gates is what explain prints, and
// a gate's Reason is the word that conditions, Events and metrics use for it.
type Gate struct {
	// Name of the gate, one PascalCase word.
	Name string `json:"name"`
	// Container that it is about; empty when it is about the pod.
	Container string `json:"container,omitempty"`
	// OK: the gate is passed, or has nothing to say.
	OK bool `json:"ok"`
	// Reason is one PascalCase word, Message a sentence for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Numbers are the cores that were asked, by node and class.
	Numbers []Number `json:"numbers,omitempty"`
}

// Number is what a core, or a class of cores, answered.
type Number struct {
	// Node, empty for the cluster; Core is the core that came nearest, of so many Cores alike.
	Node  string `json:"node,omitempty"`
	Core  int    `json:"core"`
	Cores int    `json:"cores"`
	// Need is what the server would take there, Free what there is, Limit the core's capacity; ppm of a core.
	Need  rt.PPM `json:"needPpm"`
	Free  rt.PPM `json:"freePpm"`
	Limit rt.PPM `json:"limitPpm"`
	// Test that decided, and its word.
	Test   string `json:"test"`
	Reason string `json:"reason"`
	OK     bool   `json:"ok"`
	// Detail says in words what ruled the node out, where it is not the test.
	Detail string `json:"detail,omitempty"`
}

func numberOf(node string, core int, v rt.Verdict) Number {
	return Number{Node: node, Core: core, Cores: 1, Need: v.Need, Free: v.Free(), Limit: v.Limit, Test: v.Test, Reason: v.Reason, OK: v.Admitted}
}

// fullGate says of every class of cores in the cluster why none takes the server.
func (s *Snapshot) fullGate(server rt.Server) Gate {
	g := Gate{Name: GateCore, Reason: ReasonNoCoreFits}
	for _, shelf := range s.index.classes {
		g.Numbers = append(g.Numbers, s.nearest(server, shelf))
	}
	if len(g.Numbers) == 0 {
		g.Reason, g.Message = ReasonNoCores, "no node that takes new pods offers real-time cores"
		return g
	}
	nearest := g.Numbers[0]
	for _, n := range g.Numbers[1:] {
		if n.Free > nearest.Free {
			nearest = n
		}
	}
	g.Message = fmt.Sprintf("it needs %s of a core; the core with the most room, core %d of node %s, has %s (%s)",
		percent(nearest.Need), nearest.Core, nearest.Node, percent(nearest.Free), nearest.Test)
	return g
}

// nearest is the class's core with the most room.
func (s *Snapshot) nearest(server rt.Server, shelf *shelf) Number {
	out := Number{Core: rt.NoCore, Cores: shelf.free.len(), Test: testOf(shelf.policy, server)}
	_, out.Reason = s.needs(server, shelf.class)
	out.Need = server.Charge(shelf.granularity)
	if key, ok := shelf.free.last(); ok {
		out.Node, out.Core, out.Free = key.node.name, int(key.core), rt.PPM(key.ppm)
		if n, ok := s.NodeView(key.node.name); ok {
			if core, ok := n.Core(out.Core); ok {
				out.Limit = core.Capacity
				v := rt.Admit(core.Core, n.Claims(core).Servers, server)
				if out.Reason == "" {
					out.Reason = v.Reason
				}
			}
		}
	}
	return out
}

func testOf(policy rt.Policy, server rt.Server) string {
	switch {
	case policy == rt.FixedPriority:
		return rt.TestAMC
	case server.Limited:
		return rt.TestT1k
	default:
		return rt.TestT1
	}
}

func noCoresGate(node string) Gate {
	return Gate{Name: GateCore, Reason: ReasonNodeHasNoCores, Message: fmt.Sprintf("node %s has no real-time cores", node)}
}

func nodeFullGate(n *NodeView, server rt.Server, numbers []Number) Gate {
	return Gate{
		Name: GateCore, Reason: ReasonNoCoreFits, Numbers: numbers,
		Message: fmt.Sprintf("none of the %d cores of node %s takes another %s", len(n.Cores), n.Name, percent(server.Charge(n.Granularity))),
	}
}

// percent writes a bandwidth in percent of a core.
func percent(v rt.PPM) string { return fmt.Sprintf("%.1f %%", float64(v)/float64(rt.OneCore)*100) }
