package pdb

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Leave says of some pods which of them budgets let go now, alone and together. It is worked out once, to be asked about each
// set that is thought of. Without any pods it keeps no pod.
type Leave struct {
	barred map[types.UID]string
	// by is the budget to which a pod is charged.
	by map[types.UID]*policyv1.PodDisruptionBudget
}

// Leave asks the budgets about pods.
func (x Index) Leave(pods ...*corev1.Pod) Leave {
	out := Leave{barred: map[types.UID]string{}, by: map[types.UID]*policyv1.PodDisruptionBudget{}}
	for _, pod := range pods {
		switch covering := x.Covering(pod); {
		case len(covering) > 1:
			out.barred[pod.UID] = several(covering)
		case len(covering) == 1 && Charges(covering[0], pod):
			out.by[pod.UID] = covering[0]
		}
	}
	return out
}

// Empty tells whether no pod is charged to a budget, or barred.
func (l Leave) Empty() bool { return len(l.barred)+len(l.by) == 0 }

// Barred is why the API server refuses every eviction of a pod, whatever its budgets allow; empty: it may evict it.
func (l Leave) Barred(pod types.UID) string { return l.barred[pod] }

// Kept is why some pods may not all go now, together; empty: they may.
func (l Leave) Kept(pods ...types.UID) string {
	for _, uid := range pods {
		if why := l.barred[uid]; why != "" {
			return why
		}
		b, needed := l.by[uid], 0
		if b == nil {
			continue
		}
		for _, other := range pods {
			if l.by[other] == b {
				needed++
			}
		}
		if needed > Allowed(b) {
			return overdrawn(b, needed)
		}
	}
	return ""
}

// several says that more than one budget covers a pod.
func several(covering []*policyv1.PodDisruptionBudget) string {
	var names []string
	for _, b := range covering {
		names = append(names, b.Name)
	}
	return fmt.Sprintf("PodDisruptionBudgets %s cover it, and the API server evicts no pod that several cover", strings.Join(names, ", "))
}

func overdrawn(b *policyv1.PodDisruptionBudget, needed int) string {
	return fmt.Sprintf("PodDisruptionBudget %s allows %d disruptions now; %d are needed", b.Name, Allowed(b), needed)
}
