package rtruntime

import (
	"cmp"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// candidate is a container that is to run as a server of its node.
type candidate struct {
	view *state.ServerView
	// server is what the admission test judges, entry what the agent is told; core and level come later.
	server rt.Server
	entry  v1alpha1.RTServer
	// fallback, when not nil, is what runs now, for settings that grew: should they not pass, it stays.
	fallback *candidate
	// lostRace: claims of the server give way, because the scheduler has allocated their core, too.
	lostRace bool
	// asked is the last overrun that was reported; zero for none.
	asked asked
}

// unpaid is why its claims do not pay for it.
func (c candidate) unpaid(n *state.NodeView, granularity int64) rt.Verdict {
	v := rt.Verdict{Test: rt.TestT1, Need: c.server.Charge(granularity), Limit: c.view.Claimed, Reason: reasonClaimTooSmall, Server: c.server.ID}
	switch {
	case c.lostRace:
		v.Reason = reasonLostRace
	case paid(c.view, granularity):
		v = unbacked(n, c.view)
	}
	return v
}

// unbacked is why a core refuses settings that raise a server further than the core's escalation reserve.
func unbacked(n *state.NodeView, s *state.ServerView) rt.Verdict {
	v := rt.Verdict{Test: rt.TestT1k, Need: s.Step(), Reason: rt.ReasonReserveTooSmall, Server: s.ID}
	if core, ok := n.Core(s.Witness); ok {
		v.Limit = core.EscalationReserve
	}
	return v
}

// candidateOf is the container as its McKube wants it or, when its claims do not pay for that, as it runs.
// ok is false for a container that neither runs nor is paid for.
func candidateOf(n *state.NodeView, s *state.ServerView, granularity int64) (c candidate, ok bool) {
	c = candidate{view: s, server: s.Server, entry: entryOf(s)}
	running, runs := runningOf(s)
	pays := paid(s, granularity) && n.Backed(s)
	if !runs {
		return c, pays
	}
	switch {
	case sameBudgets(c.entry, running.entry):
		return c, true
	case !grows(running.server, c.server, granularity):
		return c, true
	case !pays:
		return running, true
	}
	c.fallback = &running
	return c, true
}

// paid tells whether the container's claims give the bandwidth that its settings need.
func paid(s *state.ServerView, granularity int64) bool {
	return s.Claimed >= s.Charge(granularity)
}

// grows tells whether new settings ask more of a core than the old ones.
func grows(from, to rt.Server, granularity int64) bool {
	return to.Charge(granularity) > from.Charge(granularity) || to.Limited && to.Step() > from.Step()
}

// runningOf is the container as RTNode.spec has it. ok is false when it is not there, or no server.
func runningOf(s *state.ServerView) (c candidate, ok bool) {
	if s.Spec == nil {
		return candidate{}, false
	}
	c = candidate{view: s, server: serverOf(*s.Spec), entry: *s.Spec}
	c.server.Preferred, c.server.Priority, c.server.Fit = s.Preferred, s.Priority, s.Fit
	return c, c.server.Validate() == nil
}

// serverOf is the server of an entry of RTNode.spec.
func serverOf(e v1alpha1.RTServer) rt.Server {
	criticality, err := rt.ParseCriticality(e.Criticality)
	if err != nil {
		criticality = rt.Low
	}
	server := rt.Server{
		ID: rtdra.ServerID(e.PodUID, e.Container), Criticality: criticality,
		Period: e.PeriodUs, Deadline: e.DeadlineUs, Low: e.BudgetLowUs, High: e.BudgetHighUs, Limited: e.Limited,
	}
	for _, l := range e.Levels {
		server.Levels = append(server.Levels, l.BudgetUs)
	}
	return server
}

// entryOf is what the container's McKube asks of the agent.
func entryOf(s *state.ServerView) v1alpha1.RTServer {
	e := v1alpha1.RTServer{
		PodUID: s.PodUID, Namespace: s.Namespace, Pod: s.Pod, Container: s.Container,
		Criticality: s.Criticality.String(), PeriodUs: s.Period, DeadlineUs: cmp.Or(s.Deadline, s.Period),
		BudgetLowUs: s.Low, BudgetHighUs: s.High, Levels: levelsOf(s.McKube),
		Mode: string(mcv1.EscalationElastic), Limited: s.Limited,
	}
	asked := s.McKube.Spec.Escalation
	if asked == nil {
		return e
	}
	e.Mode = cmp.Or(string(asked.Mode), e.Mode)
	if asked.Overruns != nil && asked.Periods != nil {
		e.Overruns, e.Periods = *asked.Overruns, *asked.Periods
	}
	if asked.Dwell != nil {
		e.DwellUs = asked.Dwell.Microseconds()
	}
	return e
}

func levelsOf(m *mcv1.McKube) []v1alpha1.RTLevel {
	if m.Spec.RTSettings == nil {
		return nil
	}
	var out []v1alpha1.RTLevel
	for _, l := range m.Spec.RTSettings.Levels {
		out = append(out, v1alpha1.RTLevel{Name: l.Name, BudgetUs: l.Runtime})
	}
	slices.SortFunc(out, func(a, b v1alpha1.RTLevel) int { return cmp.Compare(a.BudgetUs, b.BudgetUs) })
	return out
}

// sameBudgets tells whether two entries are the same server for the admission test.
func sameBudgets(a, b v1alpha1.RTServer) bool {
	return a.Criticality == b.Criticality && a.PeriodUs == b.PeriodUs && a.DeadlineUs == b.DeadlineUs &&
		a.BudgetLowUs == b.BudgetLowUs && a.BudgetHighUs == b.BudgetHighUs && a.Limited == b.Limited
}
