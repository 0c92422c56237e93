package sim

import "github.com/mainspring-rt/mainspring/pkg/rt"

// hostPeriod is the period of the host server, as in rt.AMCrtb.
const hostPeriod = rt.RestPeriod

type engine struct {
	Config
	now     int64
	servers []server
	// switched: an overrun has made the mode HIGH, and the core has not been idle since.
	switched bool
	// holders are the deadlines of raised periods (Window, WindowNaive).
	holders []int64
	ledger  ledger
	result  Result
}

func newEngine(c Config) *engine {
	e := &engine{Config: c}
	for i, s := range c.Servers {
		e.servers = append(e.servers, server{
			Server: s, floor: s.Floor(c.Core.Granularity), next: c.Next(i), owed: never,
		})
	}
	if rest := int64(rt.OneCore-c.Core.Capacity-c.Core.EscalationReserve) * hostPeriod / int64(rt.OneCore); rest > 0 {
		host := rt.Server{ID: Host, Period: hostPeriod, Low: rest, High: rest, Priority: 1 << 30}
		e.servers = append(e.servers, server{Server: host, host: true, next: Job{Work: never}, owed: never})
	}
	e.ledger = newLedger(c)
	if e.fixedPriority() {
		for i := range e.servers {
			e.servers[i].active = true // until its first window starts, without any budget
			if i < len(c.Phases) {
				e.servers[i].renew = c.Phases[i]
			}
		}
	}
	return e
}

func (e *engine) fixedPriority() bool { return e.Core.Policy == rt.FixedPriority }

func (e *engine) virtualDeadlines() bool { return e.Reaction == Account && e.Plan.VirtualDeadline > 0 }

// settle handles everything that is due now: ends of promises, then new periods, then arrivals.
func (e *engine) settle() {
	for i := range e.servers {
		s := &e.servers[i]
		if s.active && s.due == e.now && s.broken() {
			e.result.Breaks = append(e.result.Breaks, Break{
				Server: s.ID, At: e.now, Promised: min(s.granted, s.owed), Got: s.used, Raised: s.raised,
			})
		}
	}
	for i := range e.servers {
		e.renew(&e.servers[i])
	}
	for i := range e.servers {
		s := &e.servers[i]
		for s.next.At == e.now {
			e.arrive(i, s)
		}
	}
}

// renew ends a period and, if there is work, begins the next.
func (e *engine) renew(s *server) {
	if !s.active || s.renew != e.now {
		return
	}
	if e.Discard && !s.host {
		s.pending = 0
	}
	s.active = false
	e.ledger.ended(s, e.now)
	if s.pending > 0 || e.fixedPriority() {
		e.start(s)
	}
}

// arrive adds the next job's work.
func (e *engine) arrive(i int, s *server) {
	asleep := s.pending == 0
	s.pending += s.next.Work
	if s.host {
		s.next.At = never
	} else {
		s.next = e.Next(i)
	}
	switch {
	case e.fixedPriority():
		if s.active && s.release == e.now {
			s.owed = s.pending
		}
	case !s.active:
		e.start(s)
	case asleep:
		if e.Reaction == Asked && !s.host {
			e.Agent.Woke(i, e.now)
		}
		e.wake(s)
	}
}

// start begins a period now.
func (e *engine) start(s *server) {
	used := s.used
	s.active, s.release, s.due, s.renew = true, e.now, e.now+s.Window(), e.now+s.Period
	s.used, s.raised, s.granted, s.locked = 0, false, s.Low, 0
	s.late = e.lateness(s)
	s.deadline = s.due
	if s.MayEscalate() {
		s.locked = s.High - s.Low
	}
	e.startMode(s)
	e.consult(s, used)
	if e.fixedPriority() {
		s.owed = s.pending
	}
	e.result.Periods++
	e.notePromised()
}

// startMode is what of a new period depends on earlier overruns.
func (e *engine) startMode(s *server) {
	switch {
	case s.MayEscalate() && (s.dwell > 0 || (e.switched && !s.host)):
		s.dwell = max(0, s.dwell-1)
		s.granted, s.locked, s.raised = s.High, 0, true
	case s.MayEscalate() && e.virtualDeadlines():
		s.deadline = e.now + rt.VirtualDeadline(s.Server, e.Plan.VirtualDeadline)
	case e.switched && !s.host:
		s.granted = s.floor
	case s.squeezed == cut && !e.ledger.restore(s, e.now):
		s.granted = s.floor
	}
}

func (e *engine) lateness(s *server) int64 {
	if e.Late == nil || s.host {
		return 0
	}
	return e.Late()
}

// wake applies the kernel's rules to a server that wakes up within its period: with more budget left than
// its bandwidth gives until the deadline it begins a new period, or, when its deadline is shorter than its
// period, loses the excess (update_dl_entity, update_dl_revised_wakeup).
func (e *engine) wake(s *server) {
	if e.now >= s.due { // throttled until the period ends (dl_check_constrained_dl)
		s.granted, s.late, s.locked = min(s.granted, s.used), 0, 0
		return
	}
	g, window, laxity := e.Core.Granularity, s.Window(), s.due-e.now
	if e.Wake == WakeLate {
		g = 0
	}
	own := max(0, s.granted-s.used)
	whole, left := s.nominal(), own
	reserved := e.Wake == WakeReserved && s.locked > 0
	if reserved {
		whole, left = s.High, own+s.locked
	}
	overflow := left > 0 && (left+g)*window > (whole+g)*laxity
	if overflow && window == s.Period {
		e.start(s)
		return
	}
	if overflow {
		own = min(own, max(0, (s.nominal()+g)*laxity/window-g))
		s.granted = min(s.granted, s.used+own)
	}
	if own == 0 {
		s.late = 0 // that the budget has ended was noticed when the server fell asleep
	}
	if overflow || (!reserved && e.Wake != WakeUnscaled) {
		s.locked = min(s.locked, max(0, (s.High+g)*laxity/window-g-own))
	}
	if s.exhausted() {
		e.react(s)
	}
}

// advance lets the chosen server run until the next event.
func (e *engine) advance() {
	running := e.pick()
	until := e.Horizon
	for i := range e.servers {
		until = min(until, e.servers[i].nextEvent(e.now))
	}
	if running == nil {
		e.idle()
		e.now = max(until, e.now+1)
		return
	}
	ran := min(until-e.now, running.pending, running.limit())
	e.now += ran
	running.used += ran
	running.pending -= ran
	if running.exhausted() && e.now < running.due {
		e.react(running)
	}
}

// pick is the runnable server with the earliest deadline or the highest priority.
func (e *engine) pick() *server {
	var best *server
	for i := range e.servers {
		if s := &e.servers[i]; s.runnable() && (best == nil || e.before(s, best)) {
			best = s
		}
	}
	return best
}

func (e *engine) before(a, b *server) bool {
	if e.fixedPriority() {
		return a.Priority > b.Priority
	}
	return a.deadline < b.deadline
}

// notePromised adds up the budgets of the periods under way; a server that has none counts with its next.
func (e *engine) notePromised() {
	total := rt.PPM(0)
	for i := range e.servers {
		s := &e.servers[i]
		if s.host {
			continue
		}
		budget := s.Low
		switch {
		case e.Reaction == Asked:
			budget = e.Agent.Budget(i)
		case s.squeezed == cut:
			budget = s.floor
		}
		if s.active && e.now < s.due {
			budget = s.granted
		}
		now := rt.Server{Period: s.Period, Deadline: s.Deadline, Low: budget, High: budget}
		total += now.Charge(e.Core.Granularity)
	}
	e.result.MostPromised = max(e.result.MostPromised, total)
}

// idle returns to low budgets: no server has work that may run. It locks again what a raised period has not used, or the
// server would overrun and the simulation would not notice.
func (e *engine) idle() {
	if !e.switched {
		return
	}
	e.switched = false
	for i := range e.servers {
		s := &e.servers[i]
		if spare := s.granted - max(s.used, s.Low); s.active && s.raised && spare > 0 {
			s.granted, s.locked, s.raised = s.granted-spare, s.locked+spare, false
		}
	}
}
