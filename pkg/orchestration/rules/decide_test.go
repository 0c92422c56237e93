package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// action is a waiting one with the given uses.
func action(id string, uses ...rules.Use) rules.Action {
	return rules.Action{ID: id, Kind: rules.Migrate, Uses: uses, Cause: "cause-" + id, Since: start, Limit: time.Minute, Phase: rules.Waiting, Entered: start}
}

func use(r rules.Resource, name string, amount int) rules.Use {
	return rules.Use{Key: rules.Key{Resource: r, Name: name}, Amount: amount}
}

func pod(name string) rules.Use  { return use(rules.Pod, name, rules.All) }
func node(name string) rules.Use { return use(rules.Node, name, rules.All) }

// world has two of everything and no vetoes, but for what is named.
func world(capacities map[string]int) rules.World {
	return rules.World{Capacity: func(k rules.Key) int {
		if c, ok := capacities[k.String()]; ok {
			return c
		}
		return 2
	}}
}

// summary is what the verdicts say, in their order.
func summary(verdicts []rules.Verdict) []string {
	var out []string
	for _, v := range verdicts {
		switch {
		case v.Start:
			out = append(out, v.ID+" starts")
		case v.Refuse:
			out = append(out, v.ID+" refused: "+v.Reason)
		default:
			out = append(out, fmt.Sprintf("%s waits: %s %v", v.ID, v.Reason, v.Blockers))
		}
	}
	return out
}

func TestDecide(t *testing.T) {
	with := func(a rules.Action, change func(*rules.Action)) rules.Action { change(&a); return a }
	running := func(a *rules.Action) { a.Phase = rules.Running }
	done := func(a *rules.Action) { a.Phase = rules.Succeeded }
	opening := func(id string) rules.Action {
		return with(action(id), func(a *rules.Action) { a.Kind, a.Cause = rules.OpenNode, "late" })
	}
	high := func(a *rules.Action) { a.Criticality = rt.High }
	for name, c := range map[string]struct {
		actions []rules.Action
		world   map[string]int
		veto    string
		want    []string
	}{
		"what nobody uses": {
			actions: []rules.Action{action("a", pod("p"), node("n")), action("b", pod("q"), node("m"))},
			want:    []string{"a starts", "b starts"},
		},
		"a pod is held": {
			actions: []rules.Action{with(action("a", pod("p")), running), action("b", pod("p"))},
			want:    []string{"b waits: InUse [a]"},
		},
		"a pod is held while a failed action is undone": {
			actions: []rules.Action{with(action("a", pod("p")), func(a *rules.Action) { a.Phase = rules.RollingBack }), action("b", pod("p"))},
			want:    []string{"b waits: InUse [a]"},
		},
		"two at once: the more critical starts": {
			actions: []rules.Action{action("a", pod("p")), with(action("b", pod("p")), high)},
			want:    []string{"b starts", "a waits: InUse [b]"},
		},
		"of the same class the lower rung": {
			actions: []rules.Action{with(action("a", node("n")), func(a *rules.Action) { a.Kind = rules.Preempt }), action("b", node("n"))},
			want:    []string{"b starts", "a waits: InUse [b]"},
		},
		"of the same rung the older": {
			actions: []rules.Action{with(action("a", node("n")), func(a *rules.Action) { a.Since = start.Add(time.Second) }), action("b", node("n"))},
			want:    []string{"b starts", "a waits: InUse [b]"},
		},
		"age counts as criticality": {
			actions: []rules.Action{
				with(action("old", node("n")), func(a *rules.Action) { a.Since = start.Add(-30 * time.Minute) }),
				with(action("high", node("n")), high),
			},
			want: []string{"old starts", "high waits: InUse [old]"},
		},
		"a node is shared as far as it allows": {
			actions: []rules.Action{action("a", use(rules.Node, "n", 1)), action("b", use(rules.Node, "n", 1)), action("c", use(rules.Node, "n", 1))},
			want:    []string{"a starts", "b starts", "c waits: InUse [a b]"},
		},
		"what is waited for is kept from those behind": {
			actions: []rules.Action{
				with(action("a", use(rules.Node, "n", 1)), running),
				with(action("b", node("n")), high),
				action("c", use(rules.Node, "n", 1)),
			},
			want: []string{"b waits: InUse [a]", "c waits: NotItsTurn [b]"},
		},
		"what the world withholds is kept from nobody": {
			actions: []rules.Action{
				with(action("a", use(rules.Node, "n", 1), use(rules.PodBudget, "ns/web", 1)), high),
				action("b", node("n")),
			},
			world: map[string]int{"PodBudget ns/web": 0},
			want:  []string{"a waits: PodDisruptionBudget []", "b starts"},
		},
		"budgets are not exceeded by those that start together": {
			actions: []rules.Action{action("a", use(rules.PoolBudget, "pool", 1)), action("b", use(rules.PoolBudget, "pool", 1))},
			world:   map[string]int{"PoolBudget pool": 1},
			want:    []string{"a starts", "b waits: InUse [a]"},
		},
		"a limit below the need is said so": {
			actions: []rules.Action{action("a", use(rules.Namespace, "ns", 3))},
			want:    []string{"a waits: Limit []"},
		},
		"a veto": {
			actions: []rules.Action{action("a", pod("p"))},
			veto:    "Policy",
			want:    []string{"a waits: Policy []"},
		},
		"no pod twice for one cause": {
			actions: []rules.Action{
				with(moving(action("a", pod("p")), "p", "late"), done),
				moving(action("b", pod("p")), "p", "late"),
				moving(action("c", pod("q")), "q", "late"),
			},
			want: []string{"b refused: MovedAlready", "c starts"},
		},
		"who is still there after a preemption was not evicted": {
			actions: []rules.Action{
				with(moving(action("a", pod("p")), "p", "late"), func(a *rules.Action) { a.Kind, a.Phase = rules.Preempt, rules.Failed }),
				with(moving(action("b", pod("q")), "q", "late"), func(a *rules.Action) { a.Phase = rules.Failed }),
				with(moving(action("c", pod("r")), "r", "late"), func(a *rules.Action) { a.Kind, a.Phase = rules.Preempt, rules.Succeeded }),
				moving(action("d", pod("p")), "p", "late"),
				moving(action("e", pod("q")), "q", "late"),
				moving(action("f", pod("r")), "r", "late"),
			},
			want: []string{"d starts", "e refused: MovedAlready", "f starts"},
		},
		"a pod whose container went to another core stays on its node, and the node stays": {
			actions: []rules.Action{
				with(moves(action("a"), "late", rules.Move{Pod: "p", Container: "app"}), done),
				moving(action("b", pod("p")), "p", "late"),
				moves(action("c", node("n")), "late", rules.Move{Pod: "q"}, rules.Move{Pod: "p"}),
				moves(action("d"), "late", rules.Move{Pod: "p", Container: "app"}),
				moves(action("e"), "late", rules.Move{Pod: "p", Container: "log"}),
				moves(action("f", node("n")), "later", rules.Move{Pod: "q"}, rules.Move{Pod: "p"}),
			},
			want: []string{"b refused: MovedAlready", "c refused: MovedAlready", "d refused: MovedAlready", "e starts", "f starts"},
		},
		"a pod that leaves with its node is not moved for the same beside it": {
			actions: []rules.Action{
				with(moves(action("a", node("n")), "late", rules.Move{Pod: "q"}, rules.Move{Pod: "p"}), running),
				moving(action("b", pod("p")), "p", "late"),
				with(moving(action("c", pod("p")), "p", "evicted"), high),
			},
			want: []string{"c starts", "b waits: InUse [a]"},
		},
		"a node opened for a pod, and another for a pod that was moved, move none": {
			actions: []rules.Action{
				with(opening("a"), done),
				with(moving(action("b", pod("q")), "q", "late"), done),
				moving(action("c", pod("p")), "p", "late"),
				opening("d"),
			},
			want: []string{"c starts", "d starts"},
		},
		"again for one cause when it was rolled back": {
			actions: []rules.Action{
				with(moving(action("a", pod("p")), "p", "late"), func(a *rules.Action) { a.Phase = rules.RolledBack }),
				moving(action("b", pod("p")), "p", "late"),
			},
			want: []string{"b starts"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(c.world)
			if c.veto != "" {
				w.Veto = func(rules.Action) (string, string) { return c.veto, "the policy says no" }
			}
			if got := summary(rules.Decide(c.actions, w, rules.Options{}, start)); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, change := range map[string]func(*rules.Action){
		"id: must not be empty": func(a *rules.Action) { a.ID = "" },
		`kind: "Dance" is not one of [Rearrange Migrate Preempt OpenNode ReplaceNode]`:                 func(a *rules.Action) { a.Kind = "Dance" },
		"limit: -1s is not a positive duration: what runs must end":                                    func(a *rules.Action) { a.Limit = -time.Second },
		"since: must be set: age decides on the order":                                                 func(a *rules.Action) { a.Since = time.Time{} },
		"criticality: Criticality(9) is not one of High, Middle, Low":                                  func(a *rules.Action) { a.Criticality = 9 },
		"uses[0]: amount: -1 is negative; 0 is all of it":                                              func(a *rules.Action) { a.Uses = []rules.Use{use(rules.Node, "n", -1)} },
		`uses[0]: name: "" does not name a Node`:                                                       func(a *rules.Action) { a.Uses = []rules.Use{node("")} },
		`uses[0]: name: "x" does not name a Cluster`:                                                   func(a *rules.Action) { a.Uses = []rules.Use{use(rules.Cluster, "x", 1)} },
		`uses[0]: resource: "Core" is not one of Pod, Node, Namespace, Cluster, PodBudget, PoolBudget`: func(a *rules.Action) { a.Uses = []rules.Use{use("Core", "1", 1)} },
	} {
		a := action("a", pod("p"))
		if err := a.Validate(); err != nil {
			t.Fatalf("a valid action: %v", err)
		}
		change(&a)
		if err := a.Validate(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
