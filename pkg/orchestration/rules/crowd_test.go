package rules_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// crowd are so many actions that wait for the cluster, beside 50 that run.
func crowd(waiting int) []rules.Action {
	out := make([]rules.Action, 0, waiting+50)
	for i := range waiting + 50 {
		a := rules.Action{
			ID: fmt.Sprintf("action-%06d", i), Kind: rules.Preempt, Phase: rules.Waiting, Since: time.Unix(int64(i), 0), Limit: time.Minute,
			Uses: []rules.Use{{Key: rules.Key{Resource: rules.Cluster}, Amount: 1}, {Key: rules.Key{Resource: rules.Pod, Name: fmt.Sprint(i)}}},
		}
		if i < 50 {
			a.Phase = rules.Running
		}
		out = append(out, a)
	}
	return out
}

// limited cluster: 50 actions at once.
var limited = rules.World{Capacity: func(k rules.Key) int {
	if k.Resource == rules.Cluster {
		return 50
	}
	return 1
}}

func decided(actions []rules.Action) []rules.Verdict {
	return rules.Decide(actions, limited, rules.Options{}, time.Unix(10_000, 0))
}

// queued are so many that wait for the first of them, which needs a place more than are free.
func queued(waiting int) []rules.Action {
	out := crowd(waiting)[2:]
	out[48].Uses[0].Amount = 3
	return out
}

// Four times as many actions take about four times the memory, not sixteen times.
func TestACrowdCostsWhatItCounts(t *testing.T) {
	cost := func(waiting int) uint64 {
		actions := queued(waiting)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decided(actions)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := cost(1_000), cost(4_000); many > 6*few {
		t.Errorf("1,000 actions take %d bytes, 4,000 take %d", few, many)
	}
}

func TestWhatACrowdWaitsForIsToldShortly(t *testing.T) {
	actions := crowd(6)
	got := decided(actions)
	if want := "Cluster is used by 50 actions"; got[5].Message != want || got[5].Reason != rules.ReasonInUse || len(got[5].Blockers) != 50 {
		t.Errorf("got %s %q, %d blockers, want %q", got[5].Reason, got[5].Message, len(got[5].Blockers), want)
	}
	actions = queued(6)
	for i, want := range map[int]string{0: "Cluster is used by 48 actions", 1: "Cluster is kept for action-000050", 5: "Cluster is kept for those that come before"} {
		if got := decided(actions); got[i].Message != want {
			t.Errorf("%d: got %q, want %q", i, got[i].Message, want)
		}
	}
}

// BenchmarkDecideForACrowd judges 2,000 actions that wait beside 50 that run.
func BenchmarkDecideForACrowd(b *testing.B) {
	actions := queued(2_000)
	b.ReportAllocs()
	for b.Loop() {
		decided(actions)
	}
}
