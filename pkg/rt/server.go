package rt

import (
	"fmt"
	"strings"
)

// Criticality orders servers: which is raised, which gives way, and which may displace which.
type Criticality uint8

// From the least to the most critical.
const (
	Low Criticality = iota
	Middle
	High
)

var criticalities = [...]string{Low: "Low", Middle: "Middle", High: "High"}

// String is "Low", "Middle" or "High".
func (c Criticality) String() string {
	if int(c) < len(criticalities) {
		return criticalities[c]
	}
	return fmt.Sprintf("Criticality(%d)", uint8(c))
}

// ParseCriticality reads Low, Middle or High in any letter case; empty means Low.
func ParseCriticality(s string) (Criticality, error) {
	if s == "" {
		return Low, nil
	}
	for c, name := range criticalities {
		if strings.EqualFold(s, name) {
			return Criticality(c), nil
		}
	}
	return Low, fmt.Errorf("criticality: %q is not one of High, Middle, Low", s)
}

// Bounds of a server's period in microseconds. The lower one is what the kernel takes for
// SCHED_DEADLINE (sched_deadline_period_min_us).
const (
	MinPeriod int64 = 100
	MaxPeriod int64 = 10_000_000
)

// MaxBudgetPercent of the period is the most a server may ask for, as in the seeds.
const MaxBudgetPercent = 95

// Server is a container: at most a budget of CPU time in every period. All times are microseconds.
type Server struct {
	// ID is unique among the servers judged together, for example podUID/container.
	ID string
	// Criticality: High and Middle are admitted with their raised budget; Low is raised only to what its core has left (CorePlan).
	Criticality Criticality
	// Period is how often the budget is renewed.
	Period int64
	// Deadline is when, after the start of a period, the budget must have been given; 0 means Period.
	Deadline int64
	// Low is the usual budget, High the raised one. Equal budgets switch escalation off.
	Low, High int64
	// Levels are further budgets strictly between Low and High, ascending.
	Levels []int64
	// Priority matters only on cores with Policy FixedPriority; the higher runs first.
	Priority int
	// Limited: admitted by T1k, so it may be raised only while few others are.
	Limited bool
	// Preferred are the cores to try first, in order; empty means any.
	Preferred []int
	// Fit chooses among the cores that admit the server; empty means BestFit.
	Fit Fit
}

// Fit is a rule of bin packing by which a server's core is chosen among those that admit it.
type Fit string

const (
	// BestFit takes the core with the least bandwidth left, so that large gaps stay for large servers.
	BestFit Fit = "Pack"
	// WorstFit takes the core with the most bandwidth left: MC-Kube's rule, the least loaded core.
	WorstFit Fit = "Spread"
)

// MayEscalate reports whether the server is admitted with its raised budget.
func (s Server) MayEscalate() bool { return s.Low < s.High && s.Criticality != Low }

// Guaranteed is the largest budget that the server may use, in microseconds: High when it may
// escalate, else Low.
func (s Server) Guaranteed() int64 {
	if s.MayEscalate() {
		return s.High
	}
	return s.Low
}

// Window is the time within which a budget is owed: the shorter of deadline and period.
func (s Server) Window() int64 {
	if s.Deadline > 0 && s.Deadline < s.Period {
		return s.Deadline
	}
	return s.Period
}

// Charge is the bandwidth that the server takes from its core, where the kernel may notice the end of
// a budget late by granularity microseconds: (budget + granularity) / period, rounded up. The budget
// is Guaranteed, or Low for a Limited server, whose raise the core's escalation reserve pays. With a
// deadline shorter than the period the deadline is the divisor: the density, whose sum is the
// sufficient test for constrained deadlines (Liu and Layland 1973; Baruah, Mok, Rosier, RTSS 1990).
func (s Server) Charge(granularity int64) PPM {
	if s.Limited {
		return s.at(s.Low, granularity)
	}
	return s.at(s.Guaranteed(), granularity)
}

// Step is the further bandwidth of a raise from Low to High; 0 when the server may not escalate.
func (s Server) Step() PPM {
	if !s.MayEscalate() {
		return 0
	}
	return ratio(s.High-s.Low, s.Window())
}

// at is the bandwidth of a budget, with the time by which its end may be noticed late.
func (s Server) at(budget, granularity int64) PPM {
	if budget < 0 || budget > MaxPeriod || granularity > MaxPeriod {
		return Unlimited
	}
	return ratio(withLateness(budget, granularity), s.Window())
}

// withLateness is how long a budget may really last. It saturates beyond every period, and a granularity
// below 0 counts as 0.
func withLateness(budget, granularity int64) int64 {
	return min(budget, MaxPeriod+1) + min(max(0, granularity), MaxPeriod+1)
}

// Validate says what is wrong with the server: the field, its value and the bound it breaks.
func (s Server) Validate() error {
	switch {
	case s.Criticality > High:
		return fmt.Errorf("criticality: %d is not one of High, Middle, Low", s.Criticality)
	case s.Period < MinPeriod || s.Period > MaxPeriod:
		return fmt.Errorf("period: %dus is outside %dus to %dus", s.Period, MinPeriod, MaxPeriod)
	case s.Low <= 0:
		return fmt.Errorf("runtime_low: %dus is not above 0", s.Low)
	case s.High < s.Low:
		return fmt.Errorf("runtime_hi: %dus is below runtime_low, %dus", s.High, s.Low)
	case s.High > s.Period*MaxBudgetPercent/100:
		return fmt.Errorf("runtime_hi: %dus is above %dus, %d %% of the period",
			s.High, s.Period*MaxBudgetPercent/100, MaxBudgetPercent)
	case s.Deadline != 0 && (s.Deadline < s.High || s.Deadline > s.Period):
		return fmt.Errorf("deadline: %dus is outside runtime_hi, %dus, to period, %dus", s.Deadline, s.High, s.Period)
	}
	return s.validateLists()
}

func (s Server) validateLists() error {
	below := s.Low
	for i, level := range s.Levels {
		if level <= below || level >= s.High {
			return fmt.Errorf("levels[%d]: %dus is not between %dus and runtime_hi, %dus", i, level, below, s.High)
		}
		below = level
	}
	for _, core := range s.Preferred {
		if core < 0 {
			return fmt.Errorf("core: %d is not a core number", core)
		}
	}
	return nil
}
