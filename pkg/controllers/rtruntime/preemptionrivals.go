package rtruntime

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// rivalsAtOnce bounds how many rivals one step evicts.
const rivalsAtOnce = 100

// clear evicts the rivals that wait for the plan's node: the scheduler might give them the room as soon as the
// first victim has left it. They have never run, no PodDisruptionBudget counts them, and what their owners
// make again is held back by the webhook. Where some are left that nothing makes again, the node is guarded from them. left
// tells whether the cache still shows any that could come.
func (p *preemptions) clear(ctx context.Context, c preemptor, plan state.Preemption) (left bool, refused *veto, err error) {
	pods := &corev1.PodList{}
	if err := p.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return false, nil, fmt.Errorf("listing pods without a node: %w", err)
	}
	done := 0
	owned, bare := rivals(p.Store.Snapshot(), c.view, plan.Node, pods.Items)
	for _, rival := range owned {
		left = true
		if c.memory.evicted[rival.UID] {
			continue
		}
		if done == rivalsAtOnce {
			break
		}
		done++
		refused, err := p.evict(ctx, rival)
		if refused != nil || client.IgnoreNotFound(err) != nil {
			return left, refused, err
		}
		c.memory.evicted = c.memory.evicted.with(rival.UID)
		metrics.Preemptions.WithLabelValues(metrics.ActionEvict).Inc()
		p.publish(events.Preempted(rival, string(rival.UID), c.view.Key().String(), criticalityOf(c.view).String(), plan.Node))
	}
	if !left && len(bare) > 0 {
		return true, nil, p.guard(ctx, c, plan)
	}
	return left, nil, nil
}

// rivals are the pods without a node that could take room on it before a more critical pod does: those that something
// makes again, and those that nothing does.
func rivals(snapshot *state.Snapshot, pod *state.PodView, node string, pods []corev1.Pod) (owned, bare []*corev1.Pod) {
	n, ok := snapshot.NodeView(node)
	if !ok {
		return nil, nil
	}
	for i := range pods {
		view, ok := snapshot.Pod(pods[i].UID)
		if !ok || !competes(view, pod) {
			continue
		}
		accepts, _ := snapshot.Accepts(n, view)
		switch {
		case !accepts:
		case metav1.GetControllerOf(&pods[i]) != nil:
			owned = append(owned, &pods[i])
		default:
			bare = append(bare, &pods[i])
		}
	}
	return owned, bare
}

// competes tells whether a less critical pod waits for a core, and not for the more critical one to have its own.
func competes(o, pod *state.PodView) bool {
	if o.NodeName != "" || o.Deleting || o.Finished() || slices.Contains(o.SchedulingGates, mcv1.GateYield) {
		return false
	}
	return criticalityOf(o) < criticalityOf(pod) &&
		slices.ContainsFunc(o.Governed, func(g state.Governed) bool { return g.Err == nil && !g.Claim.Allocated() })
}
