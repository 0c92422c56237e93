package rules_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

func TestPhases(t *testing.T) {
	begun := func(a rules.Action) rules.Action { return a.Start(start) }
	failing := func(a rules.Action) rules.Action {
		return begun(a).Report(rules.Result{Undo: true, Message: "no core is left"}, start)
	}
	for name, c := range map[string]struct {
		do      func(rules.Action) rules.Action
		want    rules.Phase
		message string
	}{
		"begins": {do: begun, want: rules.Running},
		"succeeds": {do: func(a rules.Action) rules.Action {
			return begun(a).Report(rules.Result{Outcome: rules.Succeeded, Message: "moved"}, start)
		}, want: rules.Succeeded, message: "moved"},
		"is undone": {do: failing, want: rules.RollingBack, message: "no core is left"},
		"was undone": {do: func(a rules.Action) rules.Action {
			return failing(a).Report(rules.Result{Outcome: rules.RolledBack}, start)
		}, want: rules.RolledBack, message: "no core is left"},
		"cannot be undone": {do: func(a rules.Action) rules.Action { return failing(a).Tick(start.Add(time.Minute)) }, want: rules.Failed, message: "It could not be undone within 1m0s: no core is left"},
		"undone in short": {do: func(a rules.Action) rules.Action {
			a.Limit = time.Second
			return failing(a).Tick(start.Add(59 * time.Second))
		}, want: rules.RollingBack, message: "no core is left"},
		"not undone in short": {do: func(a rules.Action) rules.Action {
			a.Limit = time.Second
			return failing(a).Tick(start.Add(time.Minute))
		}, want: rules.Failed, message: "It could not be undone within 1m0s: no core is left"},
		"was through": {do: func(a rules.Action) rules.Action {
			return failing(a).Report(rules.Result{Outcome: rules.Succeeded}, start)
		}, want: rules.Succeeded},
		"is not undone yet": {do: func(a rules.Action) rules.Action {
			return begun(a).Report(rules.Result{Outcome: rules.RolledBack}, start)
		}, want: rules.Running},
		"waits for a pod": {do: func(a rules.Action) rules.Action {
			return begun(a).Report(rules.Result{Message: "pod p is starting"}, start)
		}, want: rules.Running, message: "pod p is starting"},
		"is late": {do: func(a rules.Action) rules.Action {
			return begun(a).Report(rules.Result{Message: "pod p is starting"}, start).Tick(start.Add(time.Minute))
		}, want: rules.RollingBack, message: "It took longer than 1m0s: pod p is starting"},
		"is not late yet":        {do: func(a rules.Action) rules.Action { return begun(a).Tick(start.Add(59 * time.Second)) }, want: rules.Running},
		"is dropped":             {do: func(a rules.Action) rules.Action { return a.Withdraw("calm", start) }, want: rules.Withdrawn, message: "calm"},
		"is dropped midway":      {do: func(a rules.Action) rules.Action { return begun(a).Withdraw("calm", start) }, want: rules.RollingBack, message: "calm"},
		"is dropped at the end":  {do: func(a rules.Action) rules.Action { return a.Refuse("moved", start).Withdraw("calm", start) }, want: rules.Refused, message: "moved"},
		"dropped never begins":   {do: func(a rules.Action) rules.Action { return a.Withdraw("calm", start).Start(start) }, want: rules.Withdrawn, message: "calm"},
		"expires":                {do: func(a rules.Action) rules.Action { a.StartBy = start; return a.Tick(start) }, want: rules.Expired, message: "It could not begin until 2026-01-01T00:00:00Z"},
		"waits without an end":   {do: func(a rules.Action) rules.Action { return a.Tick(start.Add(1000 * time.Hour)) }, want: rules.Waiting},
		"results come too late":  {do: func(a rules.Action) rules.Action { return a.Report(rules.Result{Outcome: rules.Succeeded}, start) }, want: rules.Waiting},
		"is not refused running": {do: func(a rules.Action) rules.Action { return begun(a).Refuse("moved", start) }, want: rules.Running},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.do(action("a", pod("p"))); got.Phase != c.want || got.Message != c.message {
				t.Errorf("got %s %q, want %s %q", got.Phase, got.Message, c.want, c.message)
			}
		})
	}
}

func TestWhatTheWorldAccountsForIsNotCountedTwice(t *testing.T) {
	budget := use(rules.PodBudget, "ns/web", 1)
	evicting := action("a", pod("p"), budget).Start(start)
	next := action("b", pod("q"), budget)
	w := world(map[string]int{"PodBudget ns/web": 1})
	if got := rules.Decide([]rules.Action{evicting, next}, w, rules.Options{}, start); got[0].Start {
		t.Error("the budget was given away twice")
	}
	evicting = evicting.Report(rules.Result{Spent: []rules.Key{budget.Key}}, start)
	if got := rules.Decide([]rules.Action{evicting, next}, w, rules.Options{}, start); !got[0].Start {
		t.Errorf("the rest of the budget was kept back: %s", got[0].Message)
	}
}
