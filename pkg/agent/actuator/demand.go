package actuator

import "github.com/mainspring-rt/mainspring/pkg/agent/table"

// windowUs is the period that a level above containers is given when it had no budget of its own. It is
// long because what a level must have beyond the sum of its containers' shares does not grow with it (see
// demand.within), and the same for all levels so that their ratios add up exactly: 60 s cost 0.04 % of
// a core for a container of 10 ms.
const windowUs int64 = 60_000_000

// overshootUs is charged for a budget that the kernel ends late: a tick of 4 ms twice.
const overshootUs int64 = 8_000

// demand is the most that a container may use: HighUs in every period.
type demand struct{ runtimeUs, periodUs int64 }

// within is how much a level needs in windows of length w so that it never throttles before its
// containers do, wherever their windows begin.
//
// The kernel keeps for each group and CPU the time that it used, u, takes Q from u (but not below 0)
// at the end of each of its periods T, and throttles the group when it sees u > Q: at the latest some
// overshoot g after it became so. Let a window of the level begin with u = u0 >= 0 and end with u = u1. Within
// it at most floor(w/T) + 1 periods of the container end, and each takes at most Q, so the container
// used at most u1 - u0 + (floor(w/T) + 1) Q <= (floor(w/T) + 2) Q + g. The sum over all containers of a level
// bounds what the level is charged in any window of length w on any CPU, and a level is throttled only
// when it is charged more than its runtime. (A level with the period of its only container and the
// same budget does not have this property: when the two windows are out of step, which an overshoot suffices for,
// the container may use its budget at the end of one of its periods and again at the beginning of the next.)
//
// The kernel demands in addition that the ratios of the groups below add up to at most the level's.
// That holds, because w/T < floor(w/T) + 1.
func (d demand) within(w int64) int64 {
	return (w/d.periodUs+2)*d.runtimeUs + overshootUs
}

// bandwidth is how a backend's files tell a group's budget.
type bandwidth interface {
	controller() string
	// names of the files that tell a budget.
	names() []string
	// parse a group's budget on a core from files, which get reads.
	parse(get func(name string) (string, error), core int) (Budget, error)
	// write the budget of a group on a core, by an order of writes of which each is allowed when the
	// last is; journaled.
	write(m *machine, t target, core int, b Budget) error
	// perCore says that budgets of different cores do not add up.
	perCore() bool
	// managed says whether a level with this budget has to be sized for what is below it.
	managed(level Budget) bool
	// window is the period for a level that had no budget; 0 leaves the one that it has.
	window() int64
	// share is what a level with a period must have for a demand below it.
	share(d demand, periodUs int64) int64
	// most is the largest runtime of a demand with a period that takes no more than what is free of a
	// level's period: the inverse of share.
	most(freeUs, levelPeriodUs, periodUs int64) int64
	// shape is a budget as the files can hold it.
	shape(b Budget) Budget
	// hot opens what Set writes to.
	hot(f files, core int, periodUs int64) (*hotFile, error)
	// first is what a runtime writes when it makes a group.
	first(s Server) table.First
}
