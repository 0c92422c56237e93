package rtruntime

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// fillInNode writes where the pod of a podname runs into spec.node, as the MC-Kube controller does. The
// annotation marks it as an observation: unlike a node that the user chose it binds no later pod, and it
// follows the pod when that is made again elsewhere.
func (c *mckubes) fillInNode(ctx context.Context, g *governance) (time.Duration, error) {
	m := g.mckube
	if m.Spec.Podname == "" || mcv1.UserNode(m) != "" || len(g.parts) == 0 {
		return 0, nil
	}
	node := g.parts[0].pod.NodeName
	if node == "" || node == m.Spec.Node {
		return 0, nil
	}
	filled := m.DeepCopy()
	filled.Spec.Node = node
	if filled.Annotations == nil {
		filled.Annotations = map[string]string{}
	}
	filled.Annotations[mcv1.AnnotationFilledNode] = node
	if err := c.Client.Patch(ctx, filled, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})); err != nil {
		return 0, fmt.Errorf("filling in the node of McKube %s: %w", client.ObjectKeyFromObject(m), err)
	}
	g.mckube = filled // the status is written to this version
	return 0, nil
}
