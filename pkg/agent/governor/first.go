package governor

import (
	"maps"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// First is the budget that the group of a server may have which is not loaded yet: what the table asks for. In mode
// Reserved it is what the plan lets the server be raised to, if that would be paid for beside all servers that the table
// has for this core. It is the server's floor where the server would give way to one that is raised now. A plan that is
// older than the server says neither how far it may be raised nor how far it may be cut. Then it is not raised, and is
// cut as by any plan. Until the server is loaded, others are not told that there is room for what it was told.
func (c *Core) First(spec Server, all []Server, plan table.Plan, now int64) int64 {
	c.advance(now)
	s := server{}
	if s.specify(spec, plan) != nil {
		return spec.LeastUs
	}
	maps.DeleteFunc(c.firsts, func(id string, _ told) bool { // a server that left the table does not come
		return !slices.ContainsFunc(all, func(other Server) bool { return other.ID == id })
	})
	first := c.firstOf(&s, all, plan)
	c.firsts[s.ID] = told{s.Cgroup, s.charge(first, c.options.GranularityUs)}
	return first
}

func (c *Core) firstOf(s *server, all []Server, plan table.Plan) int64 {
	if raised := c.switched(); raised != nil && s.givesWayTo(raised) && s.LeastUs <= s.LowUs {
		return c.firstFloor(s, plan)
	}
	if s.Mode == table.Reserved && c.wouldPay(s, all, plan) {
		return s.RaiseToUs
	}
	return s.LeastUs
}

func (c *Core) firstFloor(s *server, plan table.Plan) int64 {
	for _, q := range plan.Squeeze {
		if q.ID == s.ID && q.FloorUs > 0 {
			return min(q.FloorUs, s.LeastUs)
		}
	}
	known, err := s.RT()
	if err != nil {
		return s.LeastUs
	}
	return min(known.Floor(c.options.GranularityUs), s.LeastUs)
}

// wouldPay says that the raise of a server which is not loaded yet would be paid for, and that there is room for it now.
func (c *Core) wouldPay(s *server, all []Server, plan table.Plan) bool {
	if s.Limited || s.RaiseToUs <= s.LeastUs {
		return false
	}
	need := s.charge(s.RaiseToUs, c.options.GranularityUs)
	promised := need
	for _, spec := range all {
		if other := (server{}); spec.ID != s.ID && other.specify(spec, plan) == nil {
			other.granted = other.LeastUs
			promised += other.charge(other.promise(), c.options.GranularityUs)
		}
	}
	return max(promised, c.bandwidth.sum+c.toldOthers(s)+need) <= c.limit
}

// told is what a server that is not loaded yet was told to begin with, and where.
type told struct {
	cgroup string
	charge rt.PPM
}

// toldOthers is what others were told to begin with that are not loaded yet.
func (c *Core) toldOthers(s *server) rt.PPM {
	sum := rt.PPM(0)
	for id, t := range c.firsts {
		if id != s.ID {
			sum += t.charge
		}
	}
	return sum
}

// came forgets what a server was told that is loaded now.
func (c *Core) came(s *server) {
	if c.firsts[s.ID].cgroup == s.Cgroup {
		delete(c.firsts, s.ID)
	}
}

// assertFirst asserts that the plan allows what a new server has above what the table grants it. Only what an earlier
// agent gave may be more.
func (c *Core) assertFirst(s *server, came bool) {
	if came && c.begun && s.budget > s.granted && (c.excess() > 0 || c.crowded()) {
		c.broken++
	}
}

// crowded: more Limited servers are raised than the plan has windows, beside those that leave.
func (c *Core) crowded() bool {
	raised := c.windows.sum - c.windows.held
	for i := range c.servers {
		if s := &c.servers[i]; s.Leaving && s.window {
			raised--
		}
	}
	return c.maxRaised > 0 && raised > rt.PPM(c.maxRaised)
}
