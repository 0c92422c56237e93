package v1alpha1

import "github.com/mainspring-rt/mainspring/pkg/rt"

// Budget of a level in microseconds. A level that the server does not have is the low one.
func (s RTServer) Budget(level string) int64 {
	if level == LevelHigh {
		return s.BudgetHighUs
	}
	for _, l := range s.Levels {
		if l.Name == level {
			return l.BudgetUs
		}
	}
	return s.BudgetLowUs
}

// LevelAt is the name of the highest level whose budget is at most budgetUs; low below all of them.
func (s RTServer) LevelAt(budgetUs int64) string {
	if budgetUs >= s.BudgetHighUs && s.BudgetHighUs > s.BudgetLowUs {
		return LevelHigh
	}
	name := LevelLow
	for _, l := range s.Levels {
		if l.BudgetUs <= budgetUs {
			name = l.Name
		}
	}
	return name
}

// CriticalityHigh is the criticality whose servers are raised at their first overrun.
const CriticalityHigh = "High"

// Trigger is in how many of how many periods the server must overrun to be raised: as it says or, where it
// says nothing, what its criticality asks for.
func (s RTServer) Trigger() (overruns, periods int32) {
	if s.Overruns > 0 && s.Periods > 0 {
		return s.Overruns, s.Periods
	}
	criticality, _ := rt.ParseCriticality(s.Criticality) // of an unknown one as little as of a low one
	n, of := rt.Trigger(criticality)
	return int32(n), int32(of)
}

// Dwell is how long a raised budget is kept at least, in microseconds: as the server says or, where it says
// nothing, 20 periods and at least a second.
func (s RTServer) Dwell() int64 {
	if s.DwellUs > 0 {
		return s.DwellUs
	}
	return rt.Dwell(s.PeriodUs)
}
