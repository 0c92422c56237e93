package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// makingRoom keeps pods off a node where room is made for another one.
var makingRoom = corev1.Taint{Key: mcv1.TaintMakingRoom, Effect: corev1.TaintEffectNoSchedule}

// guard keeps every pod but that of the plan off its node: what waits there with no owner cannot be evicted, because it
// would not come again, nor be held back. One step is taken each time, and the next when the cache shows it: first the
// pod tolerates the taint, or its own plan would have the node refuse it.
func (p *preemptions) guard(ctx context.Context, c preemptor, plan state.Preemption) error {
	changed := c.pod.DeepCopy()
	toleration := corev1.Toleration{Key: makingRoom.Key, Operator: corev1.TolerationOpExists, Effect: makingRoom.Effect}
	switch {
	case c.view.Tolerates(makingRoom):
		return p.setGuard(ctx, plan.Node, true)
	case slices.Contains(changed.Spec.Tolerations, toleration):
		return nil
	}
	changed.Spec.Tolerations = append(changed.Spec.Tolerations, toleration)
	if err := p.Client.Patch(ctx, changed, ifUnchanged(c.pod)); err != nil {
		return fmt.Errorf("having pod %s tolerate taint %s: %w", c.view.Key(), makingRoom.Key, err)
	}
	return nil
}

// unguard lets pods onto a node again when the plan of a pod ends, unless room is made there for another pod. A plan that
// cannot be read names no node: then the node loop does it.
func (p *preemptions) unguard(ctx context.Context, pod types.UID, node string) error {
	if node == "" || others(p.plans(p.Store.Snapshot()), pod, node, p.Clock.Now()) {
		return nil
	}
	return p.setGuard(ctx, node, false)
}

// others tells whether room is made on a node for pods beside one.
func others(plans []state.Preempting, pod types.UID, node string, now time.Time) bool {
	return slices.ContainsFunc(live(plans, pod, now), func(o state.Preempting) bool { return o.Node == node })
}

// release takes the taint off a node on which no plan makes room (any longer): the plan that put it there is gone.
func (c *nodes) release(ctx context.Context, n *state.NodeView) error {
	if !n.Tainted(makingRoom.Key) || others(c.Store.Snapshot().Preemptions(), "", n.Name, c.Clock.Now()) {
		return nil
	}
	return c.setGuard(ctx, n.Name, false)
}

// setGuard puts the taint on a node, or takes it off, unless another writer has changed the node since the controller
// read it.
func (d Dependencies) setGuard(ctx context.Context, name string, on bool) error {
	node := &corev1.Node{}
	if err := d.Client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	is := func(t corev1.Taint) bool { return t.MatchTaint(&makingRoom) }
	if slices.ContainsFunc(node.Spec.Taints, is) == on {
		return nil
	}
	changed := node.DeepCopy()
	changed.Spec.Taints = slices.DeleteFunc(changed.Spec.Taints, is)
	if on {
		changed.Spec.Taints = append(changed.Spec.Taints, makingRoom)
	}
	if err := d.Client.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("setting taint %s of node %s to %t: %w", makingRoom.Key, name, on, err)
	}
	return nil
}
