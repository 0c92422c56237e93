// Package sim simulates one core with the servers of package rt, to the microsecond and by events, and reports every
// budget that was promised and not given in time. It is the oracle of the tests of package rt: an admission test is
// sound if no set that it admits ever breaks here, whichever server overruns and whenever, and it is shown unsound by
// one set that does.
//
// Under EDF a server is a hard constant bandwidth server with the wake-up rules of the kernel's
// SCHED_DEADLINE; under fixed priorities it is a deferrable server with fixed windows, as an RT group
// is. What is not the core's capacity is used up by a host server that always has work, so that the
// core has no slack that the test does not know of.
//
// It is for tests and measurements only.
package sim

import "github.com/mainspring-rt/mainspring/pkg/rt"

// Reaction is what happens when a server that may escalate has used its low budget and still has work.
type Reaction uint8

const (
	// Stay means: budgets stay low.
	Stay Reaction = iota
	// Raise the server at once; no server gives way.
	Raise
	// SqueezeNext means: raise the server, and squeeze others from their next period on.
	SqueezeNext
	// SqueezeNow means: raise the server, and squeeze others at that moment.
	SqueezeNow
	// Window means: raise the server when its period was released at or after the deadlines of all but k-1
	// earlier holders of a raise (T1k).
	Window
	// WindowNaive means: raise the server when the deadlines of all but k-1 earlier holders have passed.
	WindowNaive
	// Account means: raise and squeeze as rt.CorePlan says.
	Account
	// AccountNaive means: as Account, but look only at what is promised at this moment.
	AccountNaive
	// Asked means: Config.Agent decides.
	Asked
)

// Wake is what happens when a server wakes up within a period in which it ran.
type Wake uint8

const (
	// WakeScaled means: the kernel's rule with the budget of the period and the granularity, and a
	// raise later in the period shrinks in proportion to what was left of it.
	WakeScaled Wake = iota
	// WakeReserved means: the kernel's rule with the high budget, as if it were reserved from the start.
	WakeReserved
	// WakeLate means: as WakeScaled, but the rule does not know that the budget's end is noticed late.
	WakeLate
	// WakeUnscaled means: the kernel's rule with the budget of the period, and full raises.
	WakeUnscaled
)

// Job is CPU work, in microseconds, that arrives at a server.
type Job struct{ At, Work int64 }

// Config is an experiment.
type Config struct {
	Core     rt.Core
	Servers  []rt.Server
	Reaction Reaction
	Wake     Wake
	// Windows is k for Window and WindowNaive.
	Windows int
	// Plan is for Account and AccountNaive.
	Plan rt.CorePlan
	// Agent is for Asked.
	Agent Agent
	// Dwell is for how many further periods a server keeps its raised budget (Raise only).
	Dwell int
	// Next yields the next job of a server, by its index, with ascending times.
	Next func(server int) Job
	// Late, if not nil, yields how late the end of a budget is noticed, 0 to the core's granularity.
	Late func() int64
	// Discard drops the work that a server has left at the end of its period.
	Discard bool
	// Phases are when the servers' first windows start, under fixed priorities.
	Phases []int64
	// Horizon is where the simulation ends, in microseconds.
	Horizon int64
}

// Break is a promise that was not kept.
type Break struct {
	// Server is the ID of the server; Host for the rest of the core.
	Server string
	// At is the deadline, in microseconds, Promised the budget and Got what was given of it.
	At, Promised, Got int64
	// Raised: the promised budget was the raised one.
	Raised bool
}

// Host is the ID of the server that uses up the rest of the core.
const Host = "host"

// Result is what an experiment showed.
type Result struct {
	Breaks []Break
	// Periods that were promised, Raises that were granted, Refusals of raises, Squeezes that were done.
	Periods, Raises, Refusals, Squeezes int
	// MostPromised is the largest sum of promised bandwidths at any instant.
	MostPromised rt.PPM
}

// Run simulates until the horizon.
func Run(c Config) Result {
	e := newEngine(c)
	for e.now < c.Horizon {
		e.settle()
		e.advance()
	}
	return e.result
}
