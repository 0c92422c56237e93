package disruption

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/mainspring-rt/mainspring/pkg/eviction"
)

// mostAsked bounds how many pods of a node are asked about: it has a few hundred at most.
const mostAsked = 512

// kept is why a pod that would have to leave the node may not be evicted, in the API server's words; empty when all may. Only
// the answer to an eviction tells of a policy, so kept asks for each pod's eviction as a dry run. Never: it will not be allowed
// soon. Of Karpenter's annotation the API server knows nothing: the node is not gone before the pod that has it is, and
// Karpenter does not evict that.
func kept(ctx context.Context, c client.Client, clk clock.Clock, node string) (why string, never bool, err error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return "", false, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	for i := range pods.Items[:min(len(pods.Items), mostAsked)] {
		pod := &pods.Items[i]
		if podutils.IsDrainable(pod, clk) && !podutils.IsDisruptable(pod, clk, nil) {
			return fmt.Sprintf("pod %s/%s has annotation %s", pod.Namespace, pod.Name, karpv1.DoNotDisruptAnnotationKey), false, nil
		}
		if !podutils.IsReschedulable(pod) || !podutils.IsDrainable(pod, clk) || pod.DeletionTimestamp != nil {
			continue
		}
		answer, err := eviction.Ask(ctx, c, pod, client.DryRunAll)
		if err != nil {
			return "", false, err
		}
		if answer.Refused() {
			return fmt.Sprintf("pod %s/%s may not be evicted: %s", pod.Namespace, pod.Name, answer.Why), answer.Verdict == eviction.Never, nil
		}
	}
	return "", false, nil
}
