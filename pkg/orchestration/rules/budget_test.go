package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// dead is a budget that could allow two, and never allows any: a pod of it is never well again.
var dead = use(rules.PodBudget, "ns/dead", 1)

// town has disruption budgets, of which evictions spend, and actions that evict when they end.
type town struct {
	whole map[rules.Key]int
	spent []expense
	queue []rules.Action
	now   time.Time
	// back is how long what is spent stays away.
	back    time.Duration
	started map[string]bool
}

// expense is what an eviction has spent, until when.
type expense struct {
	rules.Use
	until time.Time
}

func (w *town) left(k rules.Key) int {
	out := w.whole[k]
	for _, e := range w.spent {
		if e.Key == k {
			out -= e.Amount
		}
	}
	return out
}

func (w *town) world() rules.World {
	return rules.World{
		Capacity: func(k rules.Key) int {
			if k == dead.Key {
				return 0
			}
			return w.left(k)
		},
		Most: func(k rules.Key) (int, bool) { return w.whole[k], true },
	}
}

// pass lets ten seconds pass: what runs ends when its limit is over, what was spent comes back, and what may start starts.
func (w *town) pass() {
	w.now = w.now.Add(10 * time.Second)
	w.spent = slices.DeleteFunc(w.spent, func(e expense) bool { return !w.now.Before(e.until) })
	for i, a := range w.queue {
		if a.Phase == rules.Running && w.now.Sub(a.Entered) >= a.Limit {
			w.queue[i] = a.Report(rules.Result{Outcome: rules.Succeeded}, w.now)
			for _, u := range a.Uses {
				w.spent = append(w.spent, expense{u, w.now.Add(w.back)})
			}
		}
	}
	w.queue = slices.DeleteFunc(w.queue, func(a rules.Action) bool { return a.Phase.Over() })
	for _, v := range rules.Decide(w.queue, w.world(), rules.Options{AgeStep: step}, w.now) {
		if i := slices.IndexFunc(w.queue, func(a rules.Action) bool { return a.ID == v.ID }); v.Start {
			w.queue[i] = w.queue[i].Start(w.now)
			w.started[v.ID] = true
		}
	}
}

// overdrawn is a budget of which more is spent and used than there is.
func (w *town) overdrawn() (rules.Key, bool) {
	left := map[rules.Key]int{}
	for _, a := range w.queue {
		for _, u := range a.Uses {
			if a.Phase.Holds() {
				left[u.Key] -= u.Amount
			}
		}
	}
	for k, n := range left {
		if w.left(k)+n < 0 {
			return k, true
		}
	}
	return rules.Key{}, false
}

// asks puts an action into the queue.
func (w *town) asks(id string, c rt.Criticality, uses ...rules.Use) {
	a := action(id, uses...)
	a.Criticality, a.Since, a.Entered = c, w.now, w.now
	w.queue = append(w.queue, a)
}

// budgets of the town.
var (
	east = use(rules.PodBudget, "ns/east", 1)
	west = use(rules.PoolBudget, "west", 1)
)

func times(n int, u rules.Use) rules.Use { u.Amount = n; return u }

// stuck are actions before all others that never can start: they need what is dead, or more than there ever is, beside what others need.
func (w *town) stuck(t *rapid.T) (n int) {
	n = rapid.IntRange(0, 3).Draw(t, "stuck")
	for i := range n {
		uses := []rules.Use{times(rapid.IntRange(1, w.whole[east.Key]).Draw(t, "needs"), east), dead}
		switch rapid.IntRange(0, 2).Draw(t, "way") {
		case 0:
			uses = append(uses, west)
		case 1:
			uses = []rules.Use{times(w.whole[east.Key]+1, east), west}
		}
		w.asks(fmt.Sprintf("stuck%d", i), rt.High, uses...)
	}
	return n
}

// stream keeps so many small actions waiting, and tells how many came in.
func (w *town) stream(t *rapid.T, waiting int) (came int) {
	for n := len(w.queue); n < waiting; n++ {
		uses := rapid.SampledFrom([][]rules.Use{{east}, {west}, {east, west}}).Draw(t, "uses")
		w.asks(fmt.Sprintf("small%d-%d", w.now.Unix(), n), rapid.SampledFrom([]rt.Criticality{rt.Low, rt.Middle, rt.High}).Draw(t, "criticality"), uses...)
		w.queue[len(w.queue)-1].Limit = time.Duration(rapid.IntRange(1, 4).Draw(t, "lasts")) * 10 * time.Second
		came++
	}
	return came
}

// TestNoActionStarvesOfABudget: the least critical action may need all of the budgets that all others take a little of. It
// starts once those have run that are before it in the order; and those before it that wait for ever only delay it.
func TestNoActionStarvesOfABudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &town{now: start, started: map[string]bool{}, whole: map[rules.Key]int{dead.Key: 2}}
		for _, u := range []rules.Use{east, west} {
			w.whole[u.Key] = rapid.IntRange(1, 3).Draw(t, "whole")
		}
		w.back = time.Duration(rapid.IntRange(1, 4).Draw(t, "back")) * 10 * time.Second
		stuck := w.stuck(t)
		uses := []rules.Use{times(rapid.IntRange(1, w.whole[east.Key]).Draw(t, "east"), east)}
		if n := rapid.IntRange(0, w.whole[west.Key]).Draw(t, "west"); n > 0 {
			uses = append(uses, times(n, west))
		}
		w.asks("victim", rt.Low, uses...)
		before, waiting := 0, stuck+rapid.IntRange(1, 6).Draw(t, "waiting")
		for !w.started["victim"] {
			came := w.stream(t, waiting)
			if w.now.Sub(start) <= 3*step {
				before += came
			}
			w.pass()
			if k, ok := w.overdrawn(); ok {
				t.Fatalf("of %s more is used than there is", k)
			}
			if limit := 3*step + time.Duration(before)*2*time.Minute + step<<(stuck+2); w.now.Sub(start) > limit {
				t.Fatalf("it has not begun after %s, with %d before it and %d stuck", limit, before, stuck)
			}
		}
	})
}
