package sim

import (
	"math/rand/v2"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Pattern is how a server's work arrives.
type Pattern uint8

const (
	// Always means: every period, from time 0, more work than any budget.
	Always Pattern = iota
	// Sometimes means: sporadic jobs, of which some overrun and others need less than the low budget.
	Sometimes
	// Bursts means: small and large pieces of work at any time, so that the server sleeps within its
	// periods.
	Bursts
	// Later means: jobs within the low budget first, and more work than any budget from some time on.
	Later
)

var (
	// Sporadic are the patterns in which jobs of a server are at least a period apart and never sleep.
	Sporadic = []Pattern{Always, Sometimes, Later}
	// Any are all patterns.
	Any = []Pattern{Always, Sometimes, Later, Bursts}
)

// Workload draws one of the patterns for each server, and its jobs; it yields them as Config.Next wants
// them. Later begins to overrun at a random time before turn.
func Workload(r *rand.Rand, servers []rt.Server, turn int64, patterns ...Pattern) func(int) Job {
	sources := make([]source, len(servers))
	for i, s := range servers {
		sources[i] = source{r: r, Server: s, pattern: patterns[r.IntN(len(patterns))], turn: r.Int64N(turn)}
	}
	return func(i int) Job { return sources[i].next() }
}

type source struct {
	rt.Server
	r       *rand.Rand
	pattern Pattern
	// at is when the next job arrives at the earliest; turn is when Later begins to overrun.
	at, turn int64
}

func (s *source) next() Job {
	switch s.pattern {
	case Sometimes:
		return s.job(s.r.Int64N(s.Period/2+1)*s.r.Int64N(2), s.demand(), s.Period)
	case Bursts:
		return s.job(s.r.Int64N(s.Period), 1+s.r.Int64N(s.High), 1)
	case Later:
		work := 1 + s.r.Int64N(s.Low)
		if s.at >= s.turn {
			work = s.High + s.r.Int64N(s.High)
		}
		return s.job(0, work, s.Period)
	default:
		return s.job(0, 2*s.High, s.Period)
	}
}

// demand is a job's work: half of the jobs overrun.
func (s *source) demand() int64 {
	if s.r.IntN(2) == 0 {
		return 1 + s.r.Int64N(s.Low)
	}
	return s.Low + s.r.Int64N(2*s.High)
}

// job arrives after a pause, and the next one not sooner than the separation after it.
func (s *source) job(pause, work, separation int64) Job {
	at := s.at + pause
	s.at = at + separation
	return Job{At: at, Work: work}
}

// Lateness draws how late ends of budgets are noticed: at once, at the latest, or in between.
func Lateness(r *rand.Rand, granularity int64) func() int64 {
	return func() int64 {
		switch r.IntN(3) {
		case 0:
			return 0
		case 1:
			return granularity
		default:
			return r.Int64N(granularity + 1)
		}
	}
}
