package rt

// Trigger is in how many of how many periods a server must overrun to be raised, where the user does not say otherwise:
// 1 of 1 for criticality High and 2 of 10 for the others.
func Trigger(c Criticality) (overruns, periods int) {
	if c == High {
		return 1, 1
	}
	return 2, 10
}

const (
	minDwellUs      = 1_000_000
	minDwellPeriods = 20
)

// Dwell is how long a raised budget of a server with that period is kept at least, in microseconds, where the user does
// not say otherwise: 20 periods and at least a second.
func Dwell(periodUs int64) int64 { return max(minDwellPeriods*periodUs, minDwellUs) }
