package fastpath

import (
	"log/slog"
	"slices"
	"strings"
	"time"
)

const (
	// staleFor is how long a plan is older than its containers before that is told: a pod and the plan that names it come from different
	// watches, and for a moment one is there without the other.
	staleFor = int64(10 * time.Second)
	// staleEvery is how often that is told at most, and mostStale how many of them are named.
	staleEvery = int64(time.Minute)
	mostStale  = 20
)

// stale is what plans name in vain, since when, and what was told of it when.
type stale struct {
	now           []string
	told          []string
	since, toldAt int64
}

// take notes what the plans of another table name in vain.
func (s *stale) take(entries []string, at int64) {
	if len(s.now) == 0 {
		s.since = at
	}
	if s.now = entries; len(entries) == 0 {
		s.told = nil // what comes later is told again
	}
}

// tell tells of it, once.
func (s *stale) tell(at int64) {
	if len(s.now) == 0 || slices.Equal(s.now, s.told) || at-s.since < staleFor || len(s.told) > 0 && at-s.toldAt < staleEvery {
		return
	}
	s.told, s.toldAt = s.now, at
	named := s.now[:min(len(s.now), mostStale)]
	slog.Warn("plans are older than the containers: what they say of these servers, which are not on that core, is passed over",
		"servers", strings.Join(named, "; "), "count", len(s.now))
}
