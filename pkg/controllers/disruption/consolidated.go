package disruption

import (
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// Karpenter's consolidation remembers the instant of the cluster's last change when a search has come to nothing, and does not search again for five
// minutes unless the cluster is marked anew. Two kinds of change do not mark it (kubernetes-sigs/karpenter #2926 and #3291), and do here:
//   - one that comes during the search: the method reads the instant when it has ended, and the search has not seen the change;
//   - a node that becomes a candidate by what is not in the cluster's state: condition Consolidatable, the end of a nomination, a PodDisruptionBudget.

// markNewCandidates marks the cluster where a node is a candidate that was none in the pass before.
func (m *filtered) markNewCandidates(candidates []*disruption.Candidate) {
	if m.ConsolidationType() == "" {
		return
	}
	now := lo.SliceToMap(candidates, func(c *disruption.Candidate) (string, bool) { return c.Name(), true })
	if lo.SomeBy(candidates, func(c *disruption.Candidate) bool { return !m.candidates[c.Name()] }) {
		m.Cluster.MarkUnconsolidated()
	}
	m.candidates, m.searched = now, true
}

// endPass forgets the candidates where the method had none in this pass.
func (m *filtered) endPass() {
	if !m.searched {
		m.candidates = nil
	}
	m.searched = false
}

// endPass marks the cluster where it has changed since the pass began.
func (c *Controller) endPass(began time.Time) {
	for _, m := range c.standard {
		m.endPass()
	}
	if !c.Cluster.ConsolidationState().Equal(began) {
		c.Cluster.MarkUnconsolidated()
	}
}
