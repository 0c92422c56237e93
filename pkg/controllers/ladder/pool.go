package ladder

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// poolOf is the NodePool by which a node may be replaced; empty for none. One with a fixed number of nodes replaces none for pressure. Whoever carries
// the action out has the last word: a NodePool that cannot be read keeps nothing from being asked for.
func poolOf(ctx context.Context, from client.Reader, n *state.NodeView) string {
	name := n.Label(karpenterv1.NodePoolLabelKey)
	pool := &karpenterv1.NodePool{}
	if name != "" && from.Get(ctx, client.ObjectKey{Name: name}, pool) == nil && pool.Spec.Replicas != nil {
		return ""
	}
	return name
}
