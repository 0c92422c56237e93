package disruption

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// notice notes that the node is being closed, or gone, though this process has a command for it that has not deleted it yet.
// Then another client has deleted it, and did not ask the gate. This process cannot tell that from a deletion by an earlier
// process where it has no command itself, and says nothing then.
func (r replace) notice(task orchestration.Task, t target) {
	if (t.started || t.command != nil) && !r.Gate.hasLet(task.Object.Name) {
		task.Progress[progressOthers] = "true"
	}
}

// byOthers says so in words.
func byOthers(task orchestration.Task) string {
	if task.Progress[progressOthers] == "" {
		return ""
	}
	return ", as somebody else has deleted its NodeClaim: nobody has asked whether its pods may go, or waited for their replacement"
}

// abandon ends an action whose NodeClaim another client has removed together with its finalizer, while the node serves on.
// Karpenter does not close the node any longer, and nothing of it is Karpenter's to undo. abandon takes the command back and
// the marks off the node. It leaves what was opened: the provider may take such a machine away at any moment, and Karpenter
// closes an empty node by itself.
func (r replace) abandon(ctx context.Context, task orchestration.Task, t target) (rules.Result, error) {
	if !r.desk.callOff(task.Object.Name) {
		return rules.Result{Message: "the command is just being begun"}, nil
	}
	if t.command != nil {
		r.Cluster.UnmarkForDeletion(r.Gate.takeBack(t.command)...)
	}
	orphan := state.NewNode()
	orphan.Node, orphan.NodeClaim = t.node, &karpv1.NodeClaim{} // one without is not touched
	if err := state.RequireNoScheduleTaint(ctx, r.Client, false, orphan); client.IgnoreNotFound(err) != nil {
		return rules.Result{}, fmt.Errorf("taking the disruption's taint off node %s: %w", t.name, err)
	}
	message := fmt.Sprintf("somebody has taken the NodeClaim of node %s away, which serves on and is no longer Karpenter's", t.name)
	if names := task.Progress[progressReplacements]; names != "" {
		message += "; what was opened in its place stays: " + names
	}
	if task.Undoing() {
		message = task.Action.Message + "; but " + message
	}
	return rules.Result{Outcome: rules.Failed, Message: message}, nil
}
