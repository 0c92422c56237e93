package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// waits are an action that may never begin, one that needs all of a budget, and a small one behind both.
func waits() []rules.Action {
	out := []rules.Action{action("stuck", east, dead), action("all", times(2, east)), action("small", east)}
	out[0].Criticality, out[1].Criticality = rt.High, rt.Middle
	return out
}

// one is left of the budget, and nothing of what is dead.
var one = rules.World{Capacity: func(k rules.Key) int {
	if k == east.Key {
		return 1
	}
	return 0
}}

const fallsShort, all = "stuck waits: PodDisruptionBudget []", "all waits: PodDisruptionBudget []"

// turn is the beginning of a step of time that so many give way in.
func turn(giving int) time.Time {
	at := time.Unix(0, 0).Add(start.Sub(time.Unix(0, 0)).Truncate(64 * step))
	return at.Add(64*step + step<<giving)
}

func TestWhatABudgetLacksIsKeptInTurns(t *testing.T) {
	for name, c := range map[string]struct {
		at     time.Time
		change func([]rules.Action)
		want   string
	}{
		"at first, whoever's turn it is": {at: start, want: "small waits: NotItsTurn [stuck all]"},
		"to the end of the first step":   {at: start.Add(step - 1), want: "small waits: NotItsTurn [stuck all]"},
		"in every other step":            {at: turn(0), want: "small waits: NotItsTurn [stuck all]"},
		"to its end":                     {at: turn(0).Add(step - 1), want: "small waits: NotItsTurn [stuck all]"},
		"the first gives way":            {at: turn(1), want: "small waits: NotItsTurn [all]"},
		"the second, too":                {at: turn(2), want: "small starts"},
		"nobody before it":               {at: turn(1), change: func(a []rules.Action) { a[0].Uses = []rules.Use{dead} }, want: "small starts"},
		"another budget":                 {at: turn(0), change: func(a []rules.Action) { a[2].Uses[0].Name = "ns/other" }, want: "small waits: PodDisruptionBudget []"},
	} {
		t.Run(name, func(t *testing.T) {
			actions := waits()
			if c.change != nil {
				c.change(actions)
			}
			if got, want := summary(rules.Decide(actions, one, rules.Options{AgeStep: step}, c.at)), []string{fallsShort, all, c.want}; !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// An action that can never begin as things are keeps nothing. No action keeps pods, nodes and limits for what the world
// withholds.
func TestWhatNeverHelpsIsNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		first rules.Action
		most  map[rules.Key]int
		veto  string
		want  string
	}{
		"more may come":                 {first: action("a", times(2, east)), most: map[rules.Key]int{east.Key: 2}, want: "b waits: NotItsTurn [a]"},
		"nobody knows what may come":    {first: action("a", times(2, east)), want: "b waits: NotItsTurn [a]"},
		"it is more than there ever is": {first: action("a", times(2, east)), most: map[rules.Key]int{east.Key: 1}, want: "b starts"},
		"another budget is none":        {first: action("a", east, dead), most: map[rules.Key]int{dead.Key: 0}, want: "b starts"},
		"it is more than a limit":       {first: action("a", east, use(rules.Namespace, "ns", 1)), want: "b starts"},
		"something else forbids it":     {first: action("a", times(2, east)), veto: "Policy", want: "b starts"},
	} {
		t.Run(name, func(t *testing.T) {
			w := one
			w.Most = func(k rules.Key) (int, bool) { most, known := c.most[k]; return most, known }
			w.Veto = func(a rules.Action) (string, string) {
				if a.ID == "a" {
					return c.veto, ""
				}
				return "", ""
			}
			if got := summary(rules.Decide([]rules.Action{c.first, action("b", east)}, w, rules.Options{}, start)); got[1] != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
