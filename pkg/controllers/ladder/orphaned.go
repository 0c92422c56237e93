package ladder

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// stays tells whether a pod exists, is not being deleted and has not finished. No action would help another pod in time.
func stays(snapshot *state.Snapshot, uid types.UID) bool {
	view, ok := snapshot.Pod(uid)
	return ok && !view.Deleting && !view.Finished()
}

// orphaned lists the running actions that open or replace a node without a remaining beneficiary. Such an action was for a pod
// that is gone, and serves no affected container as critical; or none of the pods that would go to an opened node is left. The
// queue withdraws waiting actions for such a pod. Other running actions end as soon as a request to withdraw them would. While
// the node is being deleted, its pods leave because of the replacement.
func orphaned(snapshot *state.Snapshot, n *state.NodeView, s scene) []string {
	if n.Deleting || len(s.Affected) == 0 && !s.Sure {
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
		return b.Kind == "Pod" && !stays(snapshot, b.UID) && !slices.ContainsFunc(s.Affected, func(x AffectedContainer) bool {
			return x.Criticality >= worth(o) && (!opens(o) || serves(o, x, pods))
		})
	})
}
