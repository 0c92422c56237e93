package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// set is nine servers of one core.
type set struct {
	kind    kind
	seed    uint64
	total   float64 // of the core, by high budgets
	low     float64 // by low budgets
	drawn   int     // how many sets were drawn until this one was admitted
	servers []rt.Server
}

// granularityUs is what sets are drawn for: fifo, whose own is 60 to 100 us. It is charged on other backends, too,
// in place of the tick that their self-test measures. That is right here, as no job needs more than its high
// budget, so none is ended late.
const granularityUs = 100

// Search: the result is the densest set that is admitted.
const (
	totalStep = 0.01
	draws     = 2_000
)

// densest finds the densest set of a kind that a core of full capacity admits under fixed priorities (AMC-rtb),
// which is the sharpest test of all that backends have here. Sets that are not to squeeze anybody are admitted with
// everybody at their high budgets. All times are then multiplied by the scale. The same seed gives the same set.
func densest(k kind, seed uint64, scale int64) (set, error) {
	core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: granularityUs, Policy: rt.FixedPriority}
	r := rand.New(rand.NewPCG(seed, uint64(len(k.name))))
	drawn := 0
	for total := k.most; total >= k.least; total -= totalStep {
		for range draws {
			drawn++
			servers := prioritised(k.draw(r, total))
			if servers == nil || servers[heaviest(servers)].Criticality == rt.High {
				continue
			}
			if rt.Holds(core, servers).Admitted && rt.PlanCore(core, servers).ModeSwitch == k.squeezes {
				return made(k, seed, scale, drawn, servers), nil
			}
		}
	}
	return set{}, fmt.Errorf("no %s set of at least %.0f %% is admitted with seed %d after %d draws", k.name, 100*k.least, seed, drawn)
}

func made(k kind, seed uint64, scale int64, drawn int, servers []rt.Server) set {
	s := set{kind: k, seed: seed, drawn: drawn, servers: servers}
	for i := range servers {
		server := &servers[i]
		server.Period, server.Low, server.High = server.Period*scale, server.Low*scale, server.High*scale
		s.total += float64(server.High) / float64(server.Period)
		s.low += float64(server.Low) / float64(server.Period)
	}
	return s
}

// prioritised gives the servers deadline-monotonic priorities, equal ones for equal deadlines, as the agent does.
func prioritised(servers []rt.Server) []rt.Server {
	for i := range servers {
		servers[i].Priority = lowestPriority
		seen := map[int64]bool{}
		for _, o := range servers {
			if o.Window() > servers[i].Window() && !seen[o.Window()] {
				seen[o.Window()] = true
				servers[i].Priority++
			}
		}
	}
	return servers
}

const lowestPriority = 10

// admission is what the product says of a set on a backend, by the test that the backend has in a cluster.
type admission struct {
	// own is with the granularity that the node publishes, charged with granularityUs instead.
	own, charged rt.Verdict
	// squeezes: admitted with what is published, Low servers would have to give way.
	squeezes bool
}

// judge asks for admission on a node.
func (s set) judge(node table.Report, core int) admission {
	c := rt.Core{ID: core, Sibling: rt.NoSibling, Granularity: node.GranularityUs, Policy: rt.PolicyOf(node.Backend)}
	for _, reported := range node.Cores {
		if reported.ID == core {
			c.Capacity = min(rt.PPM(reported.CapacityPpm), rt.MaxCapacity)
		}
	}
	a := admission{own: rt.Holds(c, s.servers), squeezes: len(rt.PlanCore(c, s.servers).Squeeze) > 0}
	c.Granularity = granularityUs
	a.charged = rt.Holds(c, s.servers)
	return a
}

// containers is how many of a set a verdict admits.
func (s set) containers(v rt.Verdict) int {
	if v.Admitted {
		return len(s.servers)
	}
	return 0
}

// String is what is admitted, in words.
func (a admission) String() string {
	switch {
	case a.own.Admitted && a.squeezes:
		return "admitted as in a cluster, Low ones to give way: " + a.own.String()
	case a.own.Admitted:
		return "admitted as in a cluster: " + a.own.String()
	case a.charged.Admitted:
		return fmt.Sprintf("refused with the measured granularity (%s); admitted with %d us charged (%s)", a.own, granularityUs, a.charged)
	}
	return fmt.Sprintf("refused: %s; with %d us charged: %s", a.own, granularityUs, a.charged)
}

// mostScale bounds the search for a scale that is admitted: periods are 10 s at most.
const mostScale = 10_000_000 / longUs

// scaleToAdmit is what all times of the sets would have to be multiplied by to be admitted with the granularity that
// the node publishes and nobody squeezed, and how long a run would take then.
func (r result) scaleToAdmit() report.Figure {
	f := report.Figure{Key: "scale_to_admit", Note: fmt.Sprintf("no scale up to %d is admitted", mostScale)}
	for scale := int64(1); scale <= mostScale; scale++ {
		if r.admitsAt(scale) {
			f.Value = float64(scale)
			f.Note = fmt.Sprintf("all times multiplied by this are admitted with the published granularity; 1,000 periods then take %d s a run", scale*shortUs/1000)
			break
		}
	}
	return f
}

func (r result) admitsAt(scale int64) bool {
	for _, s := range r.sets {
		if s.kind.squeezes {
			continue
		}
		servers := slices.Clone(s.servers)
		larger := made(s.kind, s.seed, scale, s.drawn, servers)
		if a := larger.judge(r.node, r.core()); !a.own.Admitted || a.squeezes {
			return false
		}
	}
	return true
}

// core that the node offers.
func (r result) core() int {
	if len(r.node.Cores) == 0 {
		return 0
	}
	return r.node.Cores[0].ID
}
