package disruption

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/mainspring-rt/mainspring/pkg/eviction"
)

// mostAsked bounds how many pods of a node are asked about: it has a few hundred at most.
const mostAsked = 512

// kept is why a pod that would have to leave the node may not be evicted, in the API server's words; empty when all may. A policy is
// known only to who asks, so each pod's eviction is asked for as a dry run. Never: it will not be allowed soon.
func (d Dependencies) kept(ctx context.Context, node string) (why string, never bool, err error) {
	pods := &corev1.PodList{}
	if err := d.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return "", false, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	for i := range pods.Items[:min(len(pods.Items), mostAsked)] {
		pod := &pods.Items[i]
		if !podutils.IsReschedulable(pod) || !podutils.IsDrainable(pod, d.Clock) || pod.DeletionTimestamp != nil {
			continue
		}
		answer, err := eviction.Ask(ctx, d.Client, pod, client.DryRunAll)
		if err != nil {
			return "", false, err
		}
		if answer.Refused() {
			return fmt.Sprintf("pod %s/%s may not be evicted: %s", pod.Namespace, pod.Name, answer.Why), answer.Verdict == eviction.Never, nil
		}
	}
	return "", false, nil
}
