package sim

// Agent decides about budgets from outside, as a node agent does: with Reaction Asked.
type Agent interface {
	// Budget of a server, by its index, in microseconds: what its next period begins with.
	Budget(server int) int64
	// Started tells that a period begins, and how much was used in the one before.
	Started(server int, used, now int64)
	// Woke tells that a server wakes up within its period.
	Woke(server int, now int64)
	// Exhausted tells that the budget of the period that was released then is used up with work pending.
	Exhausted(server int, release, now int64)
}

// consult begins a period with the agent's budget.
func (e *engine) consult(s *server, used int64) {
	if s.host || e.Reaction != Asked {
		return
	}
	i := e.indexOf(s)
	e.ask(func() { e.Agent.Started(i, used, e.now) })
	s.granted = e.Agent.Budget(i)
	s.whole, s.locked = s.granted, 0
	s.raised = s.granted > s.Low
}

// ask lets the agent decide, and puts in force what it changed: a cut at once, a raise at once for the server
// that is exhausted and from their next period on for others.
func (e *engine) ask(decide func()) {
	decide()
	for i := range e.servers {
		s := &e.servers[i]
		if !s.active || s.host {
			continue
		}
		if budget := e.Agent.Budget(i); budget < s.whole {
			s.whole = budget
			s.granted = min(s.granted, max(s.whole, s.used))
		}
	}
}

// askAgent is the reaction Asked to an exhausted budget.
func (e *engine) askAgent(s *server) {
	i := e.indexOf(s)
	e.ask(func() { e.Agent.Exhausted(i, s.release, e.now) })
	more := e.Agent.Budget(i) - s.whole
	if more <= 0 {
		e.result.Refusals++
		return
	}
	s.whole += more
	s.locked = more
	e.raise(s)
}

func (e *engine) indexOf(s *server) int {
	for i := range e.servers {
		if &e.servers[i] == s {
			return i
		}
	}
	return -1
}
