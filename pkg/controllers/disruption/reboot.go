package disruption

import (
	"context"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Karpenter's repair asks for a reboot while it computes its command: by the time that a command can be judged, the node is being drained for it.
// So a node that repair would reboot is judged before.

// decideReboots returns the candidates that repair may be asked about. A reboot drains the node in place, and opens nothing for its pods. One whose
// real-time containers have no core elsewhere is therefore replaced instead: repair then opens a node for them first. One that
// must be left alone for now is no candidate.
func (m *filtered) decideReboots(ctx context.Context, candidates []*disruption.Candidate) []*disruption.Candidate {
	if m.Reason() != karpv1.DisruptionReasonUnhealthy {
		return candidates
	}
	snapshot, hand := m.Store.Snapshot(), inHand(m.actions(), "")
	return lo.Filter(candidates, func(c *disruption.Candidate, _ int) bool {
		if c.RepairPolicyResult.Action != karpcloud.RebootNode || m.lost(snapshot, c.Name()) {
			return true
		}
		reboot := disruption.Command{Candidates: []*disruption.Candidate{c}, Reboot: true}
		if o := m.kept(hand, snapshot, c); o != nil {
			m.tell(c, *o) // it is looked at again in the next pass: nothing was searched for it
			return false
		}
		m.replaceInstead(ctx, snapshot, reboot)
		return true
	})
}

// replaceInstead makes the reboot of a node a replacement where its real-time containers have no core elsewhere, and says so on the node.
func (m *filtered) replaceInstead(ctx context.Context, snapshot *state.Snapshot, reboot disruption.Command) {
	objections := m.housed(ctx, snapshot, &reboot)
	if len(objections) == 0 {
		return
	}
	c := reboot.Candidates[0]
	c.RepairPolicyResult.Action, c.RebootEscalated = karpcloud.ReplaceNode, true
	m.tell(c, objection{c.Name(), objections[0].reason, objections[0].message + "; it is not rebooted, but replaced once a node for it is open"})
}
