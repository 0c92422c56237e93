package ladder

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// weighed is an option with its known chances.
type weighed struct {
	option
	orchestration.Request
	ticket orchestration.Ticket
	// tried: an earlier attempt is known. kept: a budget is known to block it. waits: once submitted it waits for that budget.
	tried, kept, waits bool
	why                string
}

// weigh finds the known chances of an option.
func (p *planner) weigh(o option, passed []string) weighed {
	w := weighed{option: o, Request: p.request(o, passed)}
	w.why = p.kept(o)
	w.kept = w.why != ""
	w.waits = o.Kind != rules.OpenNode && p.followed(o)
	w.ticket, w.tried = p.Ticket(w.Request)
	switch o.Kind {
	case rules.OpenNode:
		w.ticket, w.tried = p.opened.ticket(w.ticket, w.tried)
	case rules.Migrate:
		w.ticket, w.tried = sentOf(p.Answers, o.Pods[0], p.beneficiary(o).Criticality).ticket(w.ticket, w.tried)
	}
	if w.tried {
		w.why = became(w.ticket)
	}
	return w
}

// followed tells whether the pods that go next may go, or are blocked by the same budget as the first. Once the first serves
// again that budget lets them go, too.
func (p *planner) followed(o option) bool {
	return !slices.ContainsFunc(o.next, func(uid types.UID) bool {
		why := p.keptMoving(uid)
		return why != "" && why != p.keptFrom(o.Pods[0], o.Target)
	})
}

// askable tells whether the planner may submit an option that is in vain as far as is known. The option must wait for the budget
// that blocks it. An opened node waits for no budget and would stay empty. Without the wait the first pod of a set would go for
// nothing.
func (p *planner) askable(w weighed) bool {
	return (!w.kept || w.waits) && (!w.tried || submittable(w.ticket, p.Now))
}

// kept is the budget that blocks an option now; empty: none. Evicted pods go together and for good. Moved pods go one after the
// other, each when the one before serves again. The controller that replaces a node evicts its pods one by one, and respects
// their budgets.
func (p *planner) kept(o option) string {
	switch o.Kind {
	case rules.Preempt:
		return p.Leave.Kept(o.Pods...)
	case rules.OpenNode:
		return p.keptMoving(o.Pods...)
	case rules.Migrate:
		return cmp.Or(p.keptFrom(o.Pods[0], o.Target), p.keptMoving(o.next...))
	}
	return ""
}

// keptMoving is the budget that blocks the move of one of some pods now; empty: none.
func (p *planner) keptMoving(pods ...types.UID) string {
	for _, uid := range pods {
		if why := p.keptFrom(uid, ""); why != "" {
			return why
		}
	}
	return ""
}

// keptFrom is the budget that blocks the move of a pod to a node now or, without a node, to any; empty: none.
func (p *planner) keptFrom(uid types.UID, node string) string {
	if why := p.Leave.Kept(uid); why != "" && !p.beside(uid, node) {
		return why
	}
	return ""
}

// barred tells whether the eviction of a pod is impossible, because several budgets cover it. No action waits for a budget then.
// The planner reports the reason with the levels that would evict it.
func (p *planner) barred(view *state.PodView) bool {
	why := p.Leave.Barred(view.UID)
	if why != "" {
		p.ties[view.UID] = "pod " + view.Key().String() + ": " + why
	}
	return why != ""
}

// waited is how often an action for the cause, for a container as critical or more, waited in vain for evictions. Actions wait
// once for a budget that allows nothing now, because another pod may be about to become ready. To wait for each pod that the
// budget blocks would take forever. An action that the disruption of a node kept from beginning did not wait for a budget.
func (p *planner) waited() int {
	n := 0
	for _, o := range p.Answers {
		kind := rules.Kind(o.Spec.Kind)
		vain := phaseOf(o) == rules.Expired && !orchestration.KeptByDisruption(o)
		if vain && worth(o) >= p.contention.affected[0].Criticality && (kind == rules.Migrate || kind == rules.Preempt) {
			n++
		}
	}
	return n
}

// leaveOf asks the PodDisruptionBudgets about the governed pods of a node. The queue decides in the end, so a budget that cannot
// be read blocks no pod here.
func leaveOf(ctx context.Context, from client.Reader, snapshot *state.Snapshot, n *state.NodeView) pdb.Leave {
	var pods []*corev1.Pod
	var budgets []policyv1.PodDisruptionBudget
	has := map[string]bool{}
	for _, uid := range sortedPods(podsOn(n)) {
		view, ok := snapshot.Pod(uid)
		if !ok {
			continue
		}
		if _, asked := has[view.Namespace]; !asked {
			list := &policyv1.PodDisruptionBudgetList{}
			has[view.Namespace] = from.List(ctx, list, client.InNamespace(view.Namespace)) == nil && len(list.Items) > 0
			budgets = append(budgets, list.Items...)
		}
		pod := &corev1.Pod{}
		if has[view.Namespace] && from.Get(ctx, view.Key(), pod) == nil && pod.UID == uid {
			pods = append(pods, pod)
		}
	}
	return pdb.NewIndex(budgets).Leave(pods...)
}
