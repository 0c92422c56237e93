package orchestration_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Two that are asked for between two looks of the dispatcher keep each limit and budget together: what the first takes is counted for the second,
// though nothing of it is done yet, and the world says that there is room for one.
func TestTwoAtTheSameInstantKeepEachLimit(t *testing.T) {
	for name, c := range map[string]struct {
		kind    rules.Kind
		options orchestration.Options
		prepare func(*stage)
		pool    string
	}{
		"actions of the cluster": {kind: rules.Preempt, options: orchestration.Options{ClusterLimit: 1}},
		"pods of a namespace":    {kind: rules.Preempt, options: orchestration.Options{NamespaceLimit: 1}},
		"actions of a node":      {kind: rules.Preempt, options: orchestration.Options{NodeLimit: 1}},
		"a PodDisruptionBudget":  {kind: rules.Preempt, prepare: func(s *stage) { s.budget("web", "a", 1) }},
		"a NodePool's budget":    {kind: rules.ReplaceNode, pool: "edge", prepare: func(s *stage) { s.nodes.allowed["edge"] = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.options = c.options
			s.node("n1")
			s.node("n2")
			if c.prepare != nil {
				c.prepare(s)
			}
			s.conduct["First"], s.conduct["Second"] = conduct{hangs: true}, conduct{hangs: true}
			p := s.spawn()
			s.turns(p, 1)
			first, second := s.request(c.kind, "First", "n1"), s.request(c.kind, "Second", "n2")
			first.Beneficiary.Criticality = "High"
			first.NodePool, second.NodePool = c.pool, c.pool
			if c.kind == rules.Preempt {
				first.Pods, second.Pods = append(first.Pods, s.pod("a1")), append(second.Pods, s.pod("a2"))
			}
			if c.options.NodeLimit > 0 {
				second.Node = "n1"
			}
			s.submit(p, first)
			s.submit(p, second)
			s.turns(p, 1)
			s.is("First Running", "Second Waiting for InUse")
		})
	}
}
