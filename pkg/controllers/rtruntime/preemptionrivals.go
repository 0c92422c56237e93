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
// make again is held back by the webhook. left tells whether the cache still shows any.
func (p *preemptions) clear(ctx context.Context, c preemptor, plan state.Preemption) (left bool, refused *veto, err error) {
	pods := &corev1.PodList{}
	if err := p.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return false, nil, fmt.Errorf("listing pods without a node: %w", err)
	}
	done := 0
	for _, rival := range rivals(p.Store.Snapshot(), c.view, plan.Node, pods.Items) {
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
	return left, nil, nil
}

// rivals are the pods without a node that could take room on it before a more critical pod does, and that
// something makes again. Those that nothing makes again stay.
func rivals(snapshot *state.Snapshot, pod *state.PodView, node string, pods []corev1.Pod) []*corev1.Pod {
	n, ok := snapshot.NodeView(node)
	if !ok {
		return nil
	}
	var out []*corev1.Pod
	for i := range pods {
		view, ok := snapshot.Pod(pods[i].UID)
		if ok && metav1.GetControllerOf(&pods[i]) != nil && competes(view, pod) {
			if accepts, _ := snapshot.Accepts(n, view); accepts {
				out = append(out, &pods[i])
			}
		}
	}
	return out
}

// competes tells whether a less critical pod waits for a core, and not for the more critical one to have its own.
func competes(o, pod *state.PodView) bool {
	if o.NodeName != "" || o.Deleting || o.Finished() || slices.Contains(o.SchedulingGates, mcv1.GateYield) {
		return false
	}
	return criticalityOf(o) < criticalityOf(pod) &&
		slices.ContainsFunc(o.Governed, func(g state.Governed) bool { return g.Err == nil && !g.Claim.Allocated() })
}
