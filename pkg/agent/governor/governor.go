package governor

import (
	"errors"
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// ErrGone means: the group of a slot is no longer there, so that no budget is in force.
var ErrGone = errors.New("the group is gone")

// Setter puts a budget in force. An error means that the old one still is, unless it is ErrGone.
type Setter interface {
	Set(slot int, budgetUs int64) error
}

// Server is a server of the table on this core, with the slot that its events name.
type Server struct {
	table.Server
	Slot int
	// RaiseToUs is how far the plan lets it be raised; 0 when the plan does not. One of criticality Low is raised only where the plan says so.
	RaiseToUs int64
	// Leaving: the table has it on another core. It gets nothing more here, and no other server gets what it has before
	// it has gone. But the core reckons what it promises to the others without it.
	Leaving bool
}

// Options of a Core. The zero value is a core whose backend has fixed priorities and stops a server at once.
type Options struct {
	// GranularityUs is how late the end of a budget may be noticed; charged to every budget.
	GranularityUs int64
	// EDF: the backend gives a server that wakes up late in its period the rest of its budget in proportion to
	// the time that is left, so that a raise in that period must be scaled, too.
	EDF bool
	// Capacity bounds what is promised whatever a plan says; 0: rt.OneCore. Without a plan it is
	// the bound, and rt.MaxCapacity when it is 0.
	Capacity rt.PPM
	// FaultAfter is how many periods in a row must use up the highest budget; 0: 3.
	FaultAfter int
	// RestoreEvery is the least time, in nanoseconds, between two steps that give squeezed servers their
	// budgets back; 0: the server's period, at least 10 ms.
	RestoreEvery int64
	// Started is when this agent started; 0: long ago. What an earlier one may have promised is kept free from then
	// on until the longest period of the servers that are loaded first is over.
	Started int64
	// Seen tells when a slot last ran: now while it runs, 0 when it never did. Without it idle
	// servers are not recovered, and what they let go of is held for a whole period.
	Seen func(slot int) int64
	// Woke tells when a slot last woke up, for EDF. Without it every raise is scaled.
	Woke func(slot int) int64
}

// Kind of an Outcome.
type Kind uint8

// What became of an event.
const (
	// None: the slot is unknown, or there was nothing to do.
	None Kind = iota
	// Counted: an overrun that asks for nothing (yet).
	Counted
	// Raised as far as was asked for.
	Raised
	// Partial: raised as far as there was room.
	Partial
	// Denied: the plan has no room now.
	Denied
	// Refused by the Setter.
	Refused
	// Recovered: a raise was given back, or a fault is over.
	Recovered
)

var kinds = [...]string{"None", "Counted", "Raised", "Partial", "Denied", "Refused", "Recovered"}

// String names the kind.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return "Kind(?)"
}

// Outcome of an event: the granted budget before and after, in microseconds (State.LevelUs).
type Outcome struct {
	Kind         Kind
	OldUs, NewUs int64
}

// Fault is why a table could not be put in force for a server.
type Fault struct {
	Slot int
	Err  error
}

// UnsetError is a Fault that Tick mends: the Setter refused a budget, which is tried again.
type UnsetError struct {
	BudgetUs int64
	Err      error
}

func (e *UnsetError) Error() string {
	return fmt.Sprintf("setting a budget of %d us: %v", e.BudgetUs, e.Err)
}

// Unwrap returns the Setter's error.
func (e *UnsetError) Unwrap() error { return e.Err }

// State of a server, for those who watch it and those who report it.
type State struct {
	// BudgetUs is in force; LevelUs is what is granted: less than the budget in mode Reserved before
	// an alarm.
	BudgetUs, LevelUs int64
	// AlarmUs is the use from which the server wants to be heard: the level. Highest: nothing
	// is above it, so that an alarm needs no lead.
	AlarmUs int64
	Highest bool
	// Alarmable: it is to be told when the server uses up its level.
	Alarmable bool
	// Raised: it is to be told when the server is clean, because there is a raise or a fault to recover from.
	Raised bool
	// Rearm changes when an alarm is to be told again within the window under way.
	Rearm uint32
	// Reserved: what it may be raised to is in force from the start, so that an alarm only marks it.
	Reserved bool
	// Squeezed below the budget that it should have. Waiting for room for that budget.
	Squeezed, Waiting bool
	// Fault is latched: the highest budget was used up several times in a row.
	Fault bool
	// DwellNs is how long a raise is kept now.
	DwellNs int64
	// LastOverrun is when a level was last used up; 0: never.
	LastOverrun int64

	Overruns, Raises, Partial, Denied, Refused, Squeezes, Recoveries uint64
}

// Core governs the servers of one core. It is not safe for concurrent use.
type Core struct {
	options   Options
	limit     rt.PPM
	maxRaised int
	// holds: every raised budget fits, Limited servers apart, so that raises are paid for already.
	holds bool
	// modeSwitch: under fixed priorities bandwidth alone proves nothing, so all victims are squeezed with the first
	// raise, as the analysis of two modes assumes (AMC-rtb).
	modeSwitch bool
	servers    []server // the most critical first
	victims    []int    // indexes of servers, in the plan's order
	index      []int    // by slot: index of the server plus 1
	inForce    map[int]int64
	firsts     map[string]told // by ID, of servers that are not loaded yet
	bandwidth  account
	windows    account // of Limited servers above low; each counts 1
	serials    uint64
	squeezes   uint64
	restoreAt  int64
	broken     uint64
	loaded     bool
	begun      bool // a server has come: what new servers have from now on is not an earlier agent's
}

// New returns a core without servers.
func New(o Options) *Core {
	if o.FaultAfter <= 0 {
		o.FaultAfter = 3
	}
	if o.Capacity <= 0 {
		o.Capacity = rt.OneCore
	}
	return &Core{options: o, inForce: map[int]int64{}, firsts: map[string]told{}}
}

// InForce says, before the Load that brings a slot, which budget its group has already. It is adopted: it
// counts as promised, is not written again, and when it is more than the server's low budget it is
// kept as a raise. One that is loaded already has left its place for a time and is back, with this.
func (c *Core) InForce(slot int, budgetUs int64) { c.inForce[slot] = budgetUs }

// Promised is the bandwidth that is promised now: raises that are paid for already and what is held until a
// deadline included.
func (c *Core) Promised() rt.PPM { return c.bandwidth.sum }

// Broken is how often a budget was granted beyond what the plan allows, or was in force above what the table grants when
// a server came, and there was no room for it. Always 0, or there is a defect.
func (c *Core) Broken() uint64 { return c.broken }

// State of a slot; empty when it is unknown.
func (c *Core) State(slot int) State {
	s := c.server(slot)
	if s == nil {
		return State{}
	}
	return State{
		BudgetUs: s.budget, LevelUs: s.level(), AlarmUs: s.level(), Highest: s.above() == s.level(),
		Alarmable: s.budget > 0 && (s.mayEscalate || s.criticality != rt.Low), Raised: s.raised > 0 || s.fault, Rearm: s.rearm,
		Reserved: s.reserved(), Squeezed: s.squeezed > 0, Waiting: s.waits(), Fault: s.fault, DwellNs: s.dwell(), LastOverrun: s.lastOverrun,
		Overruns: s.overruns, Raises: s.raises, Partial: s.partial, Denied: s.denied, Refused: s.refused,
		Squeezes: s.squeezedTimes, Recoveries: s.recoveries,
	}
}

// Raised is how many servers are above the budget that the table asks for.
func (c *Core) Raised() int {
	n := 0
	for i := range c.servers {
		if c.servers[i].raised > 0 {
			n++
		}
	}
	return n
}

func (c *Core) server(slot int) *server {
	if slot < 0 || slot >= len(c.index) || c.index[slot] == 0 {
		return nil
	}
	return &c.servers[c.index[slot]-1]
}
