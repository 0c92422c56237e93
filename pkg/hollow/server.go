package hollow

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Key names a container of the node.
type Key struct {
	// Pod is the UID of its pod.
	Pod types.UID
	// Container is its name there.
	Container string
}

func keyOf(s v1alpha1.RTServer) Key { return Key{Pod: s.PodUID, Container: s.Container} }

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Pod, other.Pod), cmp.Compare(k.Container, other.Container))
}

// server is a container as the kernel of the node would have it.
type server struct {
	spec v1alpha1.RTServer
	// origin is the release of the first period.
	origin time.Time
	script *cursor

	// What is in force. No budget is in force while budget is 0.
	core   int32
	budget int64 // what the kernel enforces, us
	level  int64 // what the container counts as, us; below budget in mode Reserved

	// granted is what the spec may give it; less than it asks for with a refusal.
	granted int64
	// raised is the level that the agent chose by itself; 0 when it chose none.
	raised int64
	// wants says that an overrun asks for a raise that has found no room yet.
	wants     bool
	raisedAt  time.Time
	recovered time.Time
	doublings int
	recent    []time.Time // overruns that still count for escalation

	overruns, misses, drift int64
	lastOverrun             time.Time
	refusal                 string
	waits                   bool // for bandwidth that is still promised until a deadline
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// bandwidth is what a budget of the server takes from its core.
func bandwidth(s v1alpha1.RTServer, budget, granularity int64) rt.PPM {
	if budget == 0 {
		return 0
	}
	return rt.Server{Period: s.PeriodUs, Deadline: s.DeadlineUs, Low: budget, High: budget}.Charge(granularity)
}

// release is the start of the period that t is in.
func (s *server) release(t time.Time) time.Time {
	period := micros(s.spec.PeriodUs)
	if t.Before(s.origin) || period <= 0 {
		return s.origin
	}
	return t.Add(-(t.Sub(s.origin) % period))
}

// nextRelease is the first start of a period at or after t.
func (s *server) nextRelease(t time.Time) time.Time {
	if at := s.release(t); !at.Before(t) {
		return at
	}
	return s.release(t).Add(micros(s.spec.PeriodUs))
}

// deadline is until when the budget of the period that t is in has been promised.
func (s *server) deadline(t time.Time) time.Time {
	window := s.spec.DeadlineUs
	if window <= 0 || window > s.spec.PeriodUs {
		window = s.spec.PeriodUs
	}
	return s.release(t).Add(micros(window))
}

// dwell is how long a raised budget is kept after the last overrun. It doubles when the container
// escalates again soon.
func (s *server) dwell() time.Duration {
	return micros(s.spec.Dwell()) << s.doublings
}

// maxDoublings bounds the dwell at 32 times its usual length.
const maxDoublings = 5

// above is the next budget above the given one, at most limit; the given one when there is none.
func above(s v1alpha1.RTServer, budget, limit int64) int64 {
	for _, l := range s.Levels {
		if l.BudgetUs > budget && l.BudgetUs <= limit {
			return l.BudgetUs
		}
	}
	if s.BudgetHighUs > budget {
		return max(budget, min(s.BudgetHighUs, limit))
	}
	return budget
}
