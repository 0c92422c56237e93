package ladder

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// stays tells whether a pod is there and neither ends nor has finished. Whoever does suffers from nothing that an action would end in time.
func stays(snapshot *state.Snapshot, uid types.UID) bool {
	view, ok := snapshot.Pod(uid)
	return ok && !view.Deleting && !view.Finished()
}

// deserted are the actions that have a node opened or replaced and run for a pod which has gone, while nobody as critical has anything of it, or for
// none that would go there. What waits for such a pod the queue withdraws, and what else runs takes no longer than to ask. Once the node is being closed
// its pods go because of the replacement.
func deserted(snapshot *state.Snapshot, n *state.NodeView, s scene) []string {
	if n.Deleting || len(s.Sufferers) == 0 && !s.Sure {
		return nil
	}
	pods := podsOn(n)
	return open(s.Answers, func(o *v1alpha1.RTAction) bool {
		b := o.Spec.Beneficiary
		switch {
		case !opens(o) && rules.Kind(o.Spec.Kind) != rules.ReplaceNode, !wantedStill(o):
			return false
		case opens(o) && !slices.ContainsFunc(o.Spec.Pods, func(p v1alpha1.ActionPod) bool { return stays(snapshot, p.UID) }):
			return true
		}
		return b.Kind == "Pod" && !stays(snapshot, b.UID) && !slices.ContainsFunc(s.Sufferers, func(x Sufferer) bool {
			return x.Criticality >= worth(o) && (!opens(o) || serves(o, x, pods))
		})
	})
}
