package node

import (
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// slowStep is how often a step of the start that takes long says so.
	slowStep = 2 * time.Second
	// longestStep is how long a step may take at most. It is more than the fast path waits for the one before it.
	longestStep = 30 * time.Second
	// longestResume is that of the table of the process before, for each of whose servers the kernel may refuse room for a while.
	longestResume = 2 * time.Minute
	// LongestStart is what all steps may take together: the two locks, what was chosen before, five backends, putting
	// back, measuring, programs, the former table, memory, the socket. A startup probe must leave the process that long,
	// or the steps' own bounds mean nothing.
	LongestStart = longestResume + 13*longestStep
)

// steps tell in the log which step a start is at, before it is begun: a start that hangs in the kernel, or waits for a
// core, cannot say so then. They tell again and again how long a slow step takes. A step that takes too long ends the
// process: the next process finds in force what this one has done, and may come through.
type steps struct {
	clock   clock.WithTicker
	abandon func()
	ended   chan struct{}

	mu     sync.Mutex
	over   bool
	what   string
	since  time.Time
	within time.Duration
}

// begin a start, which is watched until done.
func (s Settings) begin() *steps {
	st := &steps{clock: s.Clock, abandon: s.Abandon, ended: make(chan struct{})}
	ticker := s.Clock.NewTicker(slowStep)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C():
				st.look()
			case <-st.ended:
				return
			}
		}
	}()
	return st
}

// next step.
func (s *steps) next(what string) { s.nextWithin(what, longestStep) }

func (s *steps) nextWithin(what string, within time.Duration) {
	slog.Info("starting", "step", what)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what, s.since, s.within = what, s.clock.Now(), within
}

// look whether the step takes long.
func (s *steps) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.clock.Since(s.since)
	switch {
	case s.over || s.what == "" || took < slowStep:
	case took < s.within:
		slog.Warn("still starting", "step", s.what, "for", took)
	default:
		slog.Error("the start hangs; ending", "step", s.what, "for", took, "within", s.within)
		s.over = true
		s.abandon()
	}
}

// done with starting; again is no error.
func (s *steps) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what != "" {
		s.over, s.what = true, ""
		close(s.ended)
	}
}
