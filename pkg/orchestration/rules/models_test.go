package rules_test

import (
	"time"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// models are small systems that contend for everything there is.
var models = map[string]model{
	"two want one pod, a third their node": {
		actions: []rules.Action{
			modelled("a", rt.High, pod("p"), use(rules.Node, "n", 1)),
			modelled("b", rt.Low, pod("p"), use(rules.Node, "n", 1)),
			modelled("c", rt.Middle, node("n")),
		},
	},
	"three want a budget of two": {
		budget: 2, of: budgeted.Key,
		actions: []rules.Action{
			modelled("a", rt.Low, pod("p"), budgeted), modelled("b", rt.Low, pod("q"), budgeted), modelled("c", rt.Low, pod("r"), budgeted),
		},
	},
	"one wants two of a budget of which streams take one each": {
		budget: 2, of: budgeted.Key, returns: true, streams: []string{"a", "c"},
		actions: []rules.Action{
			modelled("a", rt.Low, pod("p"), budgeted), modelled("b", rt.Low, pod("q"), use(rules.PodBudget, "ns/web", 2)), modelled("c", rt.Low, pod("r"), budgeted),
		},
	},
	"the same pod for the same cause": {
		actions: []rules.Action{
			moving(modelled("a", rt.Low, pod("p")), "p", "late"), moving(modelled("b", rt.High, pod("p")), "p", "late"),
			modelled("c", rt.Middle, pod("p"), use(rules.Cluster, "", rules.All)),
		},
	},
	"two nodes want the budget of their NodePool, a third another": {
		budget: 1, of: pooled.Key,
		actions: []rules.Action{
			modelled("a", rt.Low, node("n"), pooled), modelled("b", rt.High, node("m"), pooled), modelled("c", rt.Low, node("o"), use(rules.PoolBudget, "other", 1)),
		},
	},
	"a container of a pod, the pod, and its node with it, for the same cause": {
		actions: []rules.Action{
			moves(modelled("a", rt.Low), "late", rules.Move{Pod: "p", Container: "app"}), moves(modelled("b", rt.High), "late", rules.Move{Pod: "p"}),
			moves(modelled("c", rt.Middle), "late", rules.Move{Pod: "q"}, rules.Move{Pod: "p"}),
		},
	},
	"two containers of a pod, and then all of it, for the same cause": {
		actions: []rules.Action{
			moves(modelled("a", rt.Low), "late", rules.Move{Pod: "p", Container: "app"}), moves(modelled("b", rt.Low), "late", rules.Move{Pod: "p", Container: "log"}),
			moves(modelled("c", rt.High), "late", rules.Move{Pod: "p"}),
		},
	},
}

var (
	budgeted = use(rules.PodBudget, "ns/web", 1)
	pooled   = use(rules.PoolBudget, "pool", 1)
)

func modelled(id string, c rt.Criticality, uses ...rules.Use) rules.Action {
	a := action(id, uses...)
	a.Criticality = c
	a.StartBy = start.Add(time.Hour)
	return a
}

func moving(a rules.Action, pod, cause string) rules.Action {
	return moves(a, cause, rules.Move{Pod: pod})
}

func moves(a rules.Action, cause string, list ...rules.Move) rules.Action {
	a.Moves, a.Cause = list, cause
	return a
}
