package governor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

// drawFixed is an experiment under fixed priorities.
func drawFixed(t *rapid.T) (sim.Config, *driver, *rand.Rand) {
	c := drawExperiment(t, false)
	c.Core.Policy = rt.FixedPriority
	servers := drawSet(t, func(s []rt.Server) bool {
		for i := range s {
			s[i].Priority = int(20_000 - s[i].Window())
		}
		return rt.Holds(c.Core, s).Admitted
	})
	c, r := loaded(t, c, servers, sim.Any...)
	for range servers {
		c.Phases = append(c.Phases, r.Int64N(10_000)*r.Int64N(2))
	}
	c, d := govern(c, governor.Options{}, servers)
	return c, d, r
}

// Under fixed priorities, where raises are paid for or a plan of two modes squeezes all victims with the first.
func TestFixedPrioritiesKeepTheirPromises(t *testing.T) {
	count := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c, d, _ := drawFixed(t)
		d.count = count
		if result := sim.Run(c); len(result.Breaks) > 0 || d.core.Broken() > 0 {
			t.Fatalf("%d promises broken, the first %+v; broken %d\ncore %+v\nservers %+v",
				len(result.Breaks), append(result.Breaks, sim.Break{})[0], d.core.Broken(), c.Core, c.Servers)
		}
	})
	mustHappen(t, count, "Raised", "Recovered", "squeezed", "given back")
}

// restarting is a driver whose victims' containers begin anew while a server is raised, and whose tables come again.
type restarting struct {
	*driver
	r *rand.Rand
}

func (d restarting) Started(i int, used, now int64) {
	d.driver.Started(i, used, now)
	if d.core.Raised() == 0 || d.r.IntN(10) > 0 {
		return
	}
	if d.r.IntN(2) == 0 {
		for j := range d.specs {
			if d.victim(j) {
				d.count["begun anew"]++
				d.specs[j].Cgroup = fmt.Sprint("/again-", d.count["begun anew"])
			}
		}
	}
	d.core.Load(d.specs, d.plan, ns(now), d)
	for j := range d.specs {
		if floor, cut := d.floor(j), d.core.State(j).BudgetUs; d.core.Raised() > 0 && d.victim(j) && cut > floor {
			d.count["not at its floor"]++
		}
	}
}

// victim says that a server is one and cannot be raised itself.
func (d restarting) victim(i int) bool { return d.floor(i) > 0 && !d.servers[i].MayEscalate() }

// floor of a victim; 0 for others.
func (d restarting) floor(i int) int64 {
	for _, q := range d.plan.Squeeze {
		if q.ID == d.servers[i].ID {
			return q.FloorUs
		}
	}
	return 0
}

// Victims whose containers begin anew while a server is raised, with new groups, break no promises: they come at their
// floors.
func TestVictimsThatBeginAnewBreakNoPromises(t *testing.T) {
	count := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c, d, r := drawFixed(t)
		if len(d.plan.Squeeze) == 0 {
			return
		}
		d.count = count
		w := restarting{d, r}
		c.Agent = w
		for _, b := range sim.Run(c).Breaks {
			for i, s := range d.servers {
				// A raise that is given back for who came and granted again within the period counts twice in the simulator.
				if s.ID == b.Server && !w.victim(i) && b.Got < min(b.Promised, s.High) {
					t.Fatalf("a promise is broken: %+v\ncore %+v\nservers %+v", b, c.Core, c.Servers)
				}
			}
		}
		if broken := d.core.Broken(); broken > 0 || count["not at its floor"] > 0 {
			t.Fatalf("broken %d, %d victims not at their floors\ncore %+v\nservers %+v", broken, count["not at its floor"], c.Core, c.Servers)
		}
	})
	mustHappen(t, count, "Raised", "Recovered", "begun anew")
}
