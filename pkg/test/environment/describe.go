package environment

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// describe lists what the cluster holds and what was said about it, for a failed spec.
func (env *Environment) describe() string {
	h := env.recorder.History()
	now := h.Last()
	var lines []string
	for _, c := range now.NodeClaims {
		lines = append(lines, describeNodeClaim(c))
	}
	for _, n := range now.Nodes {
		lines = append(lines, fmt.Sprintf("Node %s deleting=%t taints=%v", n.Name, !n.DeletionTimestamp.IsZero(), taintKeys(n)))
	}
	for _, p := range now.Pods {
		lines = append(lines, fmt.Sprintf("Pod %s %s on %q deleting=%t", p.Name, p.Status.Phase, p.Spec.NodeName, !p.DeletionTimestamp.IsZero()))
	}
	slices.Sort(lines)
	for _, e := range h.Events("", "") {
		lines = append(lines, describeEvent(e))
	}
	return strings.Join(lines, "\n")
}

func describeNodeClaim(c *karpenterv1.NodeClaim) string {
	return fmt.Sprintf("NodeClaim %s pool=%s type=%s %s $%g/h initialized=%t deleting=%t",
		c.Name, c.Labels[karpenterv1.NodePoolLabelKey], c.Labels[corev1.LabelInstanceTypeStable], c.Labels[karpenterv1.CapacityTypeLabelKey],
		history.Price(c), history.IsInitialized(c), !c.DeletionTimestamp.IsZero())
}

func taintKeys(n *corev1.Node) []string {
	var keys []string
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys
}

func describeEvent(e *corev1.Event) string {
	return fmt.Sprintf("Event %s %s/%s %s: %s", e.LastTimestamp.Format("15:04:05"), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
}
