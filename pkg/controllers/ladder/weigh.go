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

// weighed is an option with what is known of its chances.
type weighed struct {
	option
	orchestration.Request
	ticket orchestration.Ticket
	// tried before; kept by a budget, as far as is known; waits for that when it is asked for.
	tried, kept, waits bool
	why                string
}

// weigh finds what is known of an option's chances.
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
		w.ticket, w.tried = sentOf(p.Answers, o.Pods[0], p.whom(o).Criticality).ticket(w.ticket, w.tried)
	}
	if w.tried {
		w.why = became(w.ticket)
	}
	return w
}

// followed tells whether those who go next may, or are kept by the budget that the first waits for: once that one serves again it lets them go, too.
func (p *planner) followed(o option) bool {
	return !slices.ContainsFunc(o.next, func(uid types.UID) bool {
		why := p.keptMoving(uid)
		return why != "" && why != p.keptFrom(o.Pods[0], o.Target)
	})
}

// askable tells whether what is in vain as far as is known may be asked for all the same. It must wait for what keeps it: a node is opened whatever
// budgets say, and would stand there for nobody, and who goes first would go for nothing.
func (p *planner) askable(w weighed) bool {
	return (!w.kept || w.waits) && (!w.tried || submittable(w.ticket, p.Now))
}

// kept is which budget does not let all go now that an option needs to go; empty: none. Those who are evicted go together and for good; those who
// move go one after the other, each when the one before serves again. A node that is replaced has its pods go one by one, and who closes it sees to that.
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

// keptMoving is which budget does not let one of some pods move now; empty: none.
func (p *planner) keptMoving(pods ...types.UID) string {
	for _, uid := range pods {
		if why := p.keptFrom(uid, ""); why != "" {
			return why
		}
	}
	return ""
}

// keptFrom is which budget does not let a pod move to a node now, or without that to any; empty: none.
func (p *planner) keptFrom(uid types.UID, node string) string {
	if why := p.Leave.Kept(uid); why != "" && !p.beside(uid, node) {
		return why
	}
	return ""
}

// barred tells whether a pod may be evicted for nobody, as several budgets cover it. No budget is waited for then. Why is told with the rungs that
// would have it go.
func (p *planner) barred(view *state.PodView) bool {
	why := p.Leave.Barred(view.UID)
	if why != "" {
		p.ties[view.UID] = "pod " + view.Key().String() + ": " + why
	}
	return why != ""
}

// waited is how often an action for the cause, for somebody as critical, has waited in vain for pods to be let go. A budget that allows nothing just
// now is waited for once, as somebody may be about to come back; for each pod that it keeps that would take for ever. What a disruption of the node
// kept has waited for no budget.
func (p *planner) waited() int {
	n := 0
	for _, o := range p.Answers {
		kind := rules.Kind(o.Spec.Kind)
		vain := phaseOf(o) == rules.Expired && !orchestration.KeptByDisruption(o)
		if vain && worth(o) >= p.crowd.sufferers[0].Criticality && (kind == rules.Migrate || kind == rules.Preempt) {
			n++
		}
	}
	return n
}

// leaveOf asks PodDisruptionBudgets about the governed pods of a node. The queue has the last word: what cannot be read keeps nobody here.
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
