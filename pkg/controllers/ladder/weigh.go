package ladder

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// weighed is an option with what is known of its chances.
type weighed struct {
	orchestration.Request
	ticket orchestration.Ticket
	Vain   bool
	why    string
}

// weigh tells whether an option may be asked for, and whether that is in vain as far as is known.
func (p *planner) weigh(o option, passed []string) (w weighed, may bool) {
	w.Request = p.request(o, passed)
	ticket, known := p.Ticket(w.Request)
	if known {
		w.ticket, w.Vain, w.why = ticket, true, became(ticket)
		return w, submittable(ticket, p.Now)
	}
	if p.waited() {
		w.why = p.Kept(w.Request)
	}
	w.Vain = w.why != ""
	return w, true
}

// waited tells whether an action for the cause has waited in vain for its turn. A budget that allows nothing just now is waited for once, as somebody
// may be about to come back; for each pod that it keeps that would take for ever.
func (p *planner) waited() bool {
	return slices.ContainsFunc(p.Answers, func(o *v1alpha1.RTAction) bool { return phaseOf(o) == rules.Expired })
}

// budgets looks at PodDisruptionBudgets, at those of a namespace once in a plan. The queue has the last word: what cannot be read keeps nothing here.
type budgets struct {
	client client.Reader
	ctx    context.Context //nolint:containedctx // it lives as long as one plan
	known  map[string][]policyv1.PodDisruptionBudget
}

// keep is which budget does not let all pods of a request go now; empty: none. Whose place is taken before it goes is charged to none, and a node
// that is replaced has its pods go one by one.
func (b *budgets) keep(r orchestration.Request) string {
	if r.Beside || r.Kind != rules.Migrate && r.Kind != rules.Preempt {
		return ""
	}
	var pods []*corev1.Pod
	for _, named := range r.Pods {
		if pod := b.pod(named); pod != nil {
			pods = append(pods, pod)
		}
	}
	for _, pod := range pods {
		list := b.of(pod.Namespace)
		for i := range list {
			if kept := pdb.Overdrawn(&list[i], pods); len(kept) > 0 {
				return kept[0].Why
			}
		}
	}
	return ""
}

func (b *budgets) pod(named v1alpha1.ActionPod) *corev1.Pod {
	pod := &corev1.Pod{}
	if b.client.Get(b.ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod) != nil || pod.UID != named.UID {
		return nil
	}
	return pod
}

func (b *budgets) of(namespace string) []policyv1.PodDisruptionBudget {
	if _, read := b.known[namespace]; !read {
		list := &policyv1.PodDisruptionBudgetList{}
		if b.client.List(b.ctx, list, client.InNamespace(namespace)) != nil {
			return nil
		}
		b.known[namespace] = list.Items
	}
	return b.known[namespace]
}
