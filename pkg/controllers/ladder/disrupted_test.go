package ladder_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// consolidating has a consolidation command for a node, whose replacement boots for minutes.
type consolidating struct{ node string }

func (c *consolidating) Disrupted(name string) string {
	if name == c.node {
		return "is being replaced or closed by a disruption"
	}
	return ""
}

func (*consolidating) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) {
	return map[string]orchestration.PoolAllowance{"edge": {Nodes: 1}}, nil
}

// besideLow has a Low neighbour affect a High container, on a node that consolidation has. The other core has room for Low, or
// none.
func besideLow(t *testing.T, other int64) (*stage, *process, *consolidating) {
	t.Helper()
	s := newStage(t)
	s.node("a", 2)
	s.run("high", "a", "High", 50, 0)
	s.run("low", "a", "Low", 20, 0)
	s.run("pin", "a", "High", other, 1)
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
	p, c := s.spawn(), &consolidating{s.namespace + "-a"}
	p.queue.Nodes = c
	return s, p, c
}

// turnsUntil plays turns of two seconds until a condition holds, up to a limit. It returns how long that took.
func (s *stage) turnsUntil(p *process, long time.Duration, so func() bool) time.Duration {
	s.Helper()
	began := s.clock.Now()
	for s.clock.Since(began) < long && !so() {
		s.turns(p, 1)
	}
	return s.clock.Since(began)
}

// The controller moves an affected container within a node while consolidation is about to close the node.
func TestAffectedContainerOnConsolidatingNodeIsHelped(t *testing.T) {
	s, p, _ := besideLow(t, 45)
	if took := s.turnsUntil(p, time.Minute, func() bool { return len(s.done) > 0 }); !slices.Equal(s.done, []string{"low to core 1"}) {
		t.Errorf("after %s: %q, %q", took, s.done, s.actions())
	}
}

// The controller repeats an action that must wait for consolidation soon after that lets go, as if it had never asked for it.
func TestActionKeptByConsolidationIsRetriedSoon(t *testing.T) {
	s, p, c := besideLow(t, 70)
	s.conduct[rules.OpenNode] = rules.Result{Undo: true, Message: "no machine is free"}
	evicted := func() bool { return strings.Contains(strings.Join(s.actions(), ";"), "Preempt RTPressure Succeeded") }
	if s.turnsUntil(p, 10*time.Minute, evicted); evicted() {
		t.Fatalf("somebody was evicted from a node that is closed anyway: %q", s.actions())
	}
	if !strings.Contains(strings.Join(s.actions(), ";"), "Preempt RTPressure Expired low") {
		t.Fatalf("nothing was asked for: %q", s.actions())
	}
	c.node = ""
	if took := s.turnsUntil(p, 10*time.Minute, evicted); took > time.Minute {
		t.Errorf("%s after consolidation has let go: %q", took, s.actions())
	}
}
