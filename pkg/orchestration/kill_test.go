package orchestration_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// play is a stage with actions that contend for everything: two for one PodDisruptionBudget, of which one succeeds
// before the other, one that wants their whole node, one that gives up midway, one for a pod that another has.
type play struct {
	*stage
	requests []orchestration.Request
	// outcomes are what it may come to.
	outcomes [][]string
}

func longPlay(t *testing.T) play {
	s := newStage(t)
	s.node("n1")
	s.budget("web", "a", 1)
	s.conduct["GivesUp"] = conduct{givesUp: true}
	first, second, third := s.pod("a1"), s.pod("a2"), s.pod("b1")
	return play{s, []orchestration.Request{
		s.request(rules.Preempt, "First", "n1", first),
		s.request(rules.Preempt, "Second", "n1", second),
		s.request(rules.Rearrange, "Whole", "n1"),
		s.request(rules.Migrate, "GivesUp", "n1", third),
		s.request(rules.Preempt, "Third", "n1", third),
	}, [][]string{{"First Succeeded", "GivesUp RolledBack", "Second Succeeded", "Third Succeeded", "Whole Succeeded"}}}
}

// overtaking is a play in which the more critical of two actions on one pod may not begin yet, because of its other node.
// Once something goes wrong it may: a process that does not know what is stored would start it beside the other.
func overtaking(t *testing.T) play {
	s := newStage(t)
	s.node("n1")
	s.node("n2")
	pod := s.pod("b1")
	high := s.request(rules.Preempt, "High", "n2", pod)
	high.Beneficiary.Criticality = "High"
	s.nodes.disrupted["n2"] = "is being replaced"
	return play{s, []orchestration.Request{high, s.request(rules.Migrate, "Low", "n1", pod)}, [][]string{
		{"High Refused", "Low Succeeded"}, {"High Succeeded", "Low Refused"},
	}}
}

// overtake lets it begin.
func (s *play) overtake() { delete(s.nodes.disrupted, "n2") }

// ask has the controllers ask for what they want, as they do whenever they look.
func (s *play) ask(p *process) {
	for _, r := range s.requests {
		if _, err := p.queue.Submit(s.Context(), r); err != nil && !p.dead && p.fate == none && !errors.Is(err, orchestration.ErrNotReady) {
			s.Errorf("submitting %s: %v", r.Reason, err)
		}
	}
}

// perform goes on until everything is over. A process that dies is followed by another.
func (s *play) perform(p *process) {
	s.Helper()
	for turn := range 60 {
		err := p.turn()
		if err == nil {
			s.ask(p)
		}
		if p.dead {
			p = s.spawn()
		}
		s.clock.Step(time.Second)
		s.consistent()
		if turn > 0 && len(s.has["Pod a1"])+len(s.has["Pod a2"]) == 0 {
			s.replenish()
		}
		if now := s.summary(); slices.ContainsFunc(s.outcomes, func(o []string) bool { return slices.Equal(o, now) }) {
			s.ends()
			return
		}
	}
	s.Errorf("it does not end: %q", s.summary())
}

// replenish plays the controller of PodDisruptionBudgets, one of whose pods may be away at a time.
func (s *play) replenish() {
	if text := fmt.Sprint(s.summary()); strings.Contains(text, rules.ReasonDisruptionBudget) && !strings.Contains(text, "Running") {
		s.allow("web", 1)
	}
}

const (
	// deathsPerPlay is at how many points, chosen at random, a run of `make test` has something go wrong in each test of this file. A play
	// has ten to fifty points, and takes seconds.
	deathsPerPlay = 4
	// youngPoints is how many points a process has at least that acts while another one sleeps.
	youngPoints = 9
)

// performed is how many points an undisturbed performance has.
func performed(t *testing.T, play func(*testing.T) play) (points int) {
	t.Helper()
	t.Run("undisturbed", func(t *testing.T) {
		s := play(t)
		p := s.spawn()
		s.perform(p)
		points = p.points
		t.Logf("%d points", points)
	})
	return points
}

// Whatever write or effect a process dies before, the next one, which knows nothing but the API, ends what it began:
// everything is done once, nothing beside what is stored, nothing beyond a budget, and nothing is lost. To die after one
// is to die before the next.
func TestAnotherProcessGoesOnWhereverOneDies(t *testing.T) {
	points := performed(t, longPlay)
	if points < 40 {
		t.Errorf("only %d points: this tests next to nothing", points)
	}
	for _, at := range sampling.Points(t, 1, points+1, deathsPerPlay) {
		t.Run(fmt.Sprintf("before %d", at), func(t *testing.T) {
			s := longPlay(t)
			p := s.spawn()
			p.at, p.fate = at, dies
			s.perform(p)
			if at <= points && !p.dead {
				t.Error("it did not die")
			}
		})
	}
}

// Whatever request or reply is lost, or comes late, the process itself goes on the same way.
func TestRequestsThatAreLostOrLate(t *testing.T) {
	points := performed(t, overtaking)
	for _, f := range []fate{losesRequest, losesReply, isLate} {
		t.Run(string(f), func(t *testing.T) {
			for _, at := range sampling.Points(t, 1, points, deathsPerPlay/2) {
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					s := overtaking(t)
					s.faulty = true
					p := s.spawn()
					p.at, p.fate, p.meanwhile = at, f, s.overtake
					s.perform(p)
				})
			}
		})
	}
}

// A process sleeps before a write or an effect, another takes over, acts, and may die at any of its own points; then the
// first goes on for a while, not knowing better. Whatever it still does is the same as the other does, or is refused.
func TestTwoProcessesAtOnce(t *testing.T) {
	points := performed(t, overtaking)
	for _, pair := range sampling.Points(t, 0, points*youngPoints-1, deathsPerPlay) {
		at, death := 1+pair/youngPoints, 1+pair%youngPoints
		t.Run(fmt.Sprintf("sleeps before %d, the other dies before %d", at, death), func(t *testing.T) {
			s := overtaking(t)
			s.faulty = true
			old, young := s.spawn(), s.spawn()
			young.at, young.fate = death, dies
			old.at, old.fate, old.hasty = at, sleepsBefore, pair%2 == 0
			old.meanwhile = func() {
				s.overtake()
				for range 3 {
					_ = young.turn() // it may die
					s.ask(young)
				}
			}
			for range 4 {
				_ = old.turn() // what it is refused is its own business
				s.ask(old)
				s.clock.Step(time.Second)
				s.consistent()
			}
			s.perform(s.spawn())
		})
	}
}

// A process that has lost the queue does not even look at the actions that it believes to run.
func TestAProcessThatWasOvertakenTakesNoStep(t *testing.T) {
	s := newStage(t)
	s.node("n1")
	s.faulty = true
	old := s.spawn()
	s.turns(old, 1)
	s.submit(old, s.request(rules.Preempt, "One", "n1", s.pod("a1")))
	s.submit(old, s.request(rules.Preempt, "Two", "n1", s.pod("b1")))
	s.turns(old, 1)
	s.is("One Running", "Two Running")
	s.turns(s.spawn(), 3)
	s.is("One Succeeded", "Two Succeeded")
	if err := old.run(); !errors.Is(err, orchestration.ErrDeposed) && err != nil {
		t.Error(err)
	}
	if _, err := old.queue.Submit(t.Context(), s.request(rules.Rearrange, "Three", "n1")); !errors.Is(err, orchestration.ErrNotReady) {
		t.Errorf("it still takes requests: %v", err)
	}
	s.ends()
}
