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

// capacities of the systems that histories are played on.
var capacities = map[rules.Resource]int{rules.Pod: 1, rules.Node: 2, rules.Namespace: 3, rules.Cluster: 4}

// step of age in the histories.
const step = 2 * time.Minute

func roomy(k rules.Key) int { return capacities[k.Resource] }

// drawn is an action as it may come in.
func drawn(t *rapid.T, id string, now time.Time) rules.Action {
	name := func(kind string, n int) string { return fmt.Sprintf("%s%d", kind, rapid.IntRange(1, n).Draw(t, kind)) }
	a := action(id, pod(name("pod", 8)), use(rules.Node, name("node", 3), rapid.IntRange(0, 2).Draw(t, "share")),
		use(rules.Namespace, name("ns", 2), 1), use(rules.Cluster, "", 1))
	a.Kind = rapid.SampledFrom(rules.Kinds).Draw(t, "kind")
	a.Criticality = rapid.SampledFrom([]rt.Criticality{rt.Low, rt.Middle, rt.High}).Draw(t, "criticality")
	a.Since, a.Entered = now, now
	return a
}

// play lets time pass: what runs ends when it is due, what may start starts.
func play(actions []rules.Action, now time.Time) []rules.Action {
	for i := range actions {
		if actions[i].Phase == rules.Running && !now.Before(actions[i].Entered.Add(actions[i].Limit)) {
			actions[i] = actions[i].Report(rules.Result{Outcome: rules.Succeeded}, now)
		}
	}
	for _, v := range rules.Decide(actions, rules.World{Capacity: roomy}, rules.Options{AgeStep: step}, now) {
		if i := slices.IndexFunc(actions, func(a rules.Action) bool { return a.ID == v.ID }); v.Start {
			actions[i] = actions[i].Start(now)
		}
	}
	return slices.DeleteFunc(actions, func(a rules.Action) bool { return a.Phase.Over() })
}

// crowded is a resource of which more is used than there is, or "".
func crowded(actions []rules.Action) string {
	used, all, users := map[rules.Key]int{}, map[rules.Key]bool{}, map[rules.Key]int{}
	for _, a := range actions {
		if !a.Phase.Holds() {
			continue
		}
		for _, u := range a.Uses {
			used[u.Key] += u.Amount
			users[u.Key]++
			all[u.Key] = all[u.Key] || u.Amount == rules.All
		}
	}
	for k, n := range users {
		if used[k] > roomy(k) || all[k] && n > 1 {
			return k.String()
		}
	}
	return ""
}

func TestNothingIsEverUsedBeyondWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, actions := start, []rules.Action(nil)
		for i := range rapid.IntRange(1, 60).Draw(t, "ticks") {
			for j := range rapid.IntRange(0, 4).Draw(t, "arrivals") {
				actions = append(actions, drawn(t, fmt.Sprintf("a%d-%d", i, j), now))
			}
			if len(actions) > 0 {
				j := rapid.IntRange(0, len(actions)-1).Draw(t, "which")
				switch rapid.IntRange(0, 3).Draw(t, "fate") {
				case 0:
					actions[j] = actions[j].Withdraw("calm", now)
				case 1:
					actions[j] = actions[j].Report(rules.Result{Undo: true}, now)
				case 2:
					actions[j] = actions[j].Report(rules.Result{Outcome: rules.RolledBack}, now)
				}
			}
			actions = play(actions, now)
			if what := crowded(actions); what != "" {
				t.Fatalf("more of %s is used than there is: %+v", what, actions)
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
		}
	})
}

// TestNoActionStarves: whatever comes in, the least critical action, which needs what all others use, starts once
// those have run that are before it in the order, and those come in within three steps of age.
func TestNoActionStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		victim := action("victim", use(rules.Cluster, "", rules.All))
		victim.Kind = rules.ReplaceNode
		actions, before := []rules.Action{victim}, 0
		rate := rapid.IntRange(1, 6).Draw(t, "rate")
		for tick := range 1000 {
			now := start.Add(time.Duration(tick) * 20 * time.Second)
			for j := range rate {
				actions = append(actions, drawn(t, fmt.Sprintf("a%d-%d", tick, j), now))
				if now.Sub(start) < 3*step {
					before++
				}
			}
			actions = play(actions, now)
			if i := slices.IndexFunc(actions, func(a rules.Action) bool { return a.ID == "victim" }); i < 0 || actions[i].Phase == rules.Running {
				return
			}
			if now.Sub(start) > 3*step+time.Duration(before+1)*time.Minute {
				t.Fatalf("it has not begun after %s, with %d before it", now.Sub(start), before)
			}
			// What comes later than that is behind it, and need not be followed.
			if now.Sub(start) > 3*step+time.Minute {
				rate = min(rate, 1)
			}
		}
		t.Fatal("it has never begun")
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			actions := make([]rules.Action, n)
			for i := range actions {
				actions[i] = action(fmt.Sprintf("a%d", i), pod(fmt.Sprintf("p%d", i)), use(rules.Node, fmt.Sprintf("n%d", i%100), 1),
					use(rules.Namespace, fmt.Sprintf("ns%d", i%10), 1), use(rules.Cluster, "", 1))
				actions[i].Criticality = rt.Criticality(i % 3)
			}
			for b.Loop() {
				rules.Decide(actions, rules.World{Capacity: roomy}, rules.Options{}, start)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
