package ladder

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// poolOf is the NodePool that may replace a node; empty for none. A NodePool with a fixed number of nodes replaces none for
// pressure. The executor of the replacement decides in the end, so an error in reading the NodePool does not prevent the
// request.
func poolOf(ctx context.Context, from client.Reader, n *state.NodeView) string {
	name := n.Label(karpenterv1.NodePoolLabelKey)
	pool := &karpenterv1.NodePool{}
	if name != "" && from.Get(ctx, client.ObjectKey{Name: name}, pool) == nil && pool.Spec.Replicas != nil {
		return ""
	}
	return name
}
