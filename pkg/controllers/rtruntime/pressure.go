package rtruntime

import (
	"cmp"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// giveBackEvery is the time between two budgets of a node that the controller gives back. So it does not cut all of them
// at once, and a server that needs its raise again after the first one finds the others still raised.
const giveBackEvery = time.Second

// defaultRecoveryDelay is how long a node must be calm before budgets raised for pressure are given back,
// where the McKube does not say.
const defaultRecoveryDelay = 5 * time.Second

// pressure is what is remembered of how busy a node is. The zero value has seen nothing: after a
// restart the calm begins anew, and what is raised stays so meanwhile.
type pressure struct {
	Busy bool
	// Calm is since when the node has not been busy, by the controller's clock; zero while it is.
	Calm time.Time
	// GaveBack is when the last raised budget was given back in this calm.
	GaveBack time.Time
}

// next is the pressure after a look at the node. A clock that went backwards begins the calm anew.
func (p pressure) next(n *state.NodeView, now time.Time) pressure {
	switch {
	case n.Busy:
		return pressure{Busy: true}
	case p.Calm.IsZero() || now.Before(p.Calm) || now.Before(p.GaveBack):
		return pressure{Calm: now}
	}
	return p
}

// level is the least budget to ask for, and after what time to look again. A busy node has every server raised for which
// the plan has room. A container is raised as well when the agent reported an overrun of it. The controller keeps a
// raise until, for the server's delay, the node has been calm and the agent has reported no overrun.
func (p pressure) level(c *candidate, room bool, now time.Time) (string, time.Duration) {
	raised := c.view.Spec != nil && c.view.Spec.Level == v1alpha1.LevelHigh
	delay := recoveryDelay(c.view.McKube)
	wanted := c.asked.left(delay, now)
	if !room || (!p.Busy && !raised && wanted <= 0) {
		return v1alpha1.LevelLow, 0
	}
	if p.Busy {
		return v1alpha1.LevelHigh, 0
	}
	left := wanted
	if raised {
		left = max(left, delay-now.Sub(p.Calm))
	}
	if left > 0 {
		return v1alpha1.LevelHigh, left
	}
	return v1alpha1.LevelLow, 0
}

// recedes tells whether a server would go back to its low budget for no other reason than that it is no longer needed.
func (d *nodeDecision) recedes(c *candidate, room bool, level string) bool {
	return level == v1alpha1.LevelLow && room && c.view.Spec != nil && c.view.Spec.Level == v1alpha1.LevelHigh && !d.Pressure.Busy
}

// giveBack has one of those that would go back do so, in the reverse order of how they are raised: the least critical first. The others follow one
// by one.
func (d *nodeDecision) giveBack(receding []rt.Server, now time.Time) {
	if len(receding) == 0 {
		return
	}
	slices.SortFunc(receding, func(a, b rt.Server) int {
		return cmp.Or(cmp.Compare(a.Criticality, b.Criticality), cmp.Compare(b.ID, a.ID))
	})
	if left := d.Pressure.GaveBack.Add(giveBackEvery).Sub(now); left > 0 {
		d.Wake = earliest(d.Wake, left)
	} else {
		d.Pressure.GaveBack, receding = now, receding[1:]
		if len(receding) > 0 {
			d.Wake = earliest(d.Wake, giveBackEvery)
		}
	}
	for i := range d.Spec.Servers {
		e := &d.Spec.Servers[i]
		if slices.ContainsFunc(receding, func(s rt.Server) bool { return s.ID == rtdra.ServerID(e.PodUID, e.Container) }) {
			e.Level = v1alpha1.LevelHigh
		}
	}
}

func recoveryDelay(m *mcv1.McKube) time.Duration {
	if m == nil || m.Spec.Escalation == nil || m.Spec.Escalation.RecoveryDelay == nil {
		return defaultRecoveryDelay
	}
	return m.Spec.Escalation.RecoveryDelay.Duration
}

// raisable are the servers of a core that may be raised together without squeezing another, the most
// critical first. held are those that the agent has raised by itself: they have their place already.
func raisable(core rt.Core, servers []rt.Server, plan rt.CorePlan, held map[string]bool) map[string]bool {
	out := map[string]bool{}
	promised, windows := rt.PPM(0), 0
	paid := map[string]bool{}
	for _, r := range plan.Raise {
		paid[r.ID] = r.AtOnce
	}
	for _, s := range servers {
		promised += promise(s, paid[s.ID], core.Granularity)
		if held[s.ID] && !paid[s.ID] {
			promised += s.Step()
			windows++
		}
	}
	for _, r := range plan.Raise {
		switch {
		case r.AtOnce || held[r.ID]:
			out[r.ID] = true
		case plan.ModeSwitch || plan.Windows > 0 && windows >= plan.Windows || promised+r.Step > plan.Threshold:
		default:
			out[r.ID] = true
			promised += r.Step
			windows++
		}
	}
	return out
}

// promise is the bandwidth that is a server's before any raise that is not paid for.
func promise(s rt.Server, paid bool, granularity int64) rt.PPM {
	s.Limited = !paid // a Limited server is charged its low budget
	return s.Charge(granularity)
}
