package rtruntime

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// kept reads which of the possible victims PodDisruptionBudgets let go now; nil: all. It looks only at namespaces with
// budgets.
func (p *preemptions) kept(ctx context.Context, snapshot *state.Snapshot) (*pdb.Leave, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := p.Client.List(ctx, budgets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	index := pdb.NewIndex(budgets.Items)
	var governed []*corev1.Pod
	for namespace := range index {
		pods := &corev1.PodList{}
		if err := p.Client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			if view, ok := snapshot.Pod(pods.Items[i].UID); ok && len(view.Governed) > 0 {
				governed = append(governed, &pods.Items[i])
			}
		}
	}
	leave := index.Leave(governed...)
	if leave.Empty() {
		return nil, nil
	}
	return &leave, nil
}

// keeps tells whether budgets do not let some pods go now, alone or together.
func (s scene) keeps(pods ...types.UID) bool { return s.kept != nil && s.kept.Kept(pods...) != "" }

// may tells whether budgets let some pods go now, with those that go in any case.
func (s scene) may(gone []rt.Candidate) bool {
	if s.kept == nil {
		return true
	}
	all := append(make([]types.UID, 0, len(gone)+len(s.forced)), s.forced...)
	for _, c := range gone {
		all = append(all, types.UID(c.ID))
	}
	return !s.keeps(all...)
}
