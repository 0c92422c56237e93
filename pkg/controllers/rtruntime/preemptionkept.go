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

// upheld says which pods PodDisruptionBudgets keep now: closed ones in any case, those of an allowance when they are too many. nil
// keeps nobody. It is asked for every set of victims that is thought of, so it is made once for a search.
type upheld struct {
	closed uids
	of     map[types.UID]*allowance
}

// allowance is how many pods a budget lets go now.
type allowance struct{ pods int }

// keeps tells whether one of some pods may not go now, alone or together with the others.
func (k *upheld) keeps(pods ...types.UID) bool {
	if k == nil {
		return false
	}
	for i, uid := range pods {
		if k.closed[uid] {
			return true
		}
		a, taken := k.of[uid], 1
		if a == nil {
			continue
		}
		for _, earlier := range pods[:i] {
			if k.of[earlier] == a {
				taken++
			}
		}
		if taken > a.pods {
			return true
		}
	}
	return false
}

// kept reads who is kept now, of the pods that could be victims. Only namespaces with budgets are looked at.
func (p *preemptions) kept(ctx context.Context, snapshot *state.Snapshot) (*upheld, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := p.Client.List(ctx, budgets, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	index, out := pdb.NewIndex(budgets.Items), &upheld{closed: uids{}, of: map[types.UID]*allowance{}}
	allowances := map[*policyv1.PodDisruptionBudget]*allowance{}
	for namespace := range index {
		pods := &corev1.PodList{}
		if err := p.Client.List(ctx, pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if view, ok := snapshot.Pod(pod.UID); ok && len(view.Governed) > 0 {
				out.add(pod, index.Covering(pod), allowances)
			}
		}
	}
	if len(out.closed)+len(out.of) == 0 {
		return nil, nil
	}
	return out, nil
}

// add says of a pod what the budgets that cover it say. Where they are several the API server evicts it for nobody.
func (k *upheld) add(pod *corev1.Pod, covering []*policyv1.PodDisruptionBudget, allowances map[*policyv1.PodDisruptionBudget]*allowance) {
	switch {
	case len(covering) == 0:
	case len(covering) > 1:
		k.closed[pod.UID] = true
	case !pdb.Charges(covering[0], pod):
	case pdb.Allowed(covering[0]) <= 0:
		k.closed[pod.UID] = true
	default:
		b := covering[0]
		if allowances[b] == nil {
			allowances[b] = &allowance{pdb.Allowed(b)}
		}
		k.of[pod.UID] = allowances[b]
	}
}

// may tells whether budgets let some pods go now, with those that go in any case.
func (s scene) may(gone []rt.Candidate) bool {
	if s.kept == nil {
		return true
	}
	all := append(make([]types.UID, 0, len(gone)+len(s.forced)), s.forced...)
	for _, c := range gone {
		all = append(all, types.UID(c.ID))
	}
	return !s.kept.keeps(all...)
}
