package eviction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
)

// Together finds those of some pods, which are to go together or not at all, that PodDisruptionBudgets do not let go now. A
// dry run of each does not tell: it charges no budget. Only the dry run tells what admission says, and that several budgets
// cover a pod.
func Together(ctx context.Context, from client.Reader, pods []*corev1.Pod) ([]pdb.Kept, error) {
	var out []pdb.Kept
	read := map[string]bool{}
	for _, pod := range pods {
		if read[pod.Namespace] {
			continue
		}
		read[pod.Namespace] = true
		list := &policyv1.PodDisruptionBudgetList{}
		if err := from.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("listing PodDisruptionBudgets of namespace %s: %w", pod.Namespace, err)
		}
		for i := range list.Items {
			out = append(out, pdb.Overdrawn(&list.Items[i], pods)...)
		}
	}
	return out, nil
}
