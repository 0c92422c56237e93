package rtruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
)

// leases has the node loop look at a node when its agent renews the Lease after a silence. The loop only notes every
// other renewal, and reconciles no node for it.
func (c *nodes) leases(cache cache.Cache) source.Source {
	hear := func(l *coordinationv1.Lease, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		rtNode, uid, renewed, ours := heartbeat.Of(l)
		if ours && c.agents.renewed(uid, renewed, c.Clock.Now()) >= c.Options.AgentTimeout {
			queue.Add(reconcile.Request{NamespacedName: rtNode})
		}
	}
	return source.Kind(cache, &coordinationv1.Lease{}, handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			hear(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			hear(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*coordinationv1.Lease], _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if rtNode, uid, _, ours := heartbeat.Of(e.Object); ours && !c.stands(rtNode.Name, uid) { // a deleted Lease says nothing about the agent
				c.agents.forget(uid)
			}
		},
	})
}

// stands tells whether an RTNode is there.
func (c *nodes) stands(name string, uid types.UID) bool {
	n, ok := c.Store.Snapshot().NodeView(name)
	return ok && n.RTNode != nil && n.RTNode.UID == uid
}

// watchAgent keeps the condition AgentAlive of an RTNode true to what was heard of the agent. It returns
// the condition, whether it is new, and after what time to look again.
func (c *nodes) watchAgent(ctx context.Context, r *v1alpha1.RTNode) (alive metav1.Condition, changed bool, wait time.Duration, err error) {
	now := c.Clock.Now()
	silent := c.agents.silentFor(r.UID, r.Status.HeartbeatTime, now)
	alive, wait = agentAlive(r.Status.HeartbeatTime != nil, silent, c.Options.AgentTimeout)
	old := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAgentAlive)
	if old != nil && old.Status == alive.Status && old.Reason == alive.Reason && old.Message == alive.Message {
		return *old, false, wait, nil
	}
	alive.LastTransitionTime = metav1.NewTime(now)
	if old != nil && old.Status == alive.Status {
		alive.LastTransitionTime = old.LastTransitionTime
	}
	changed = old == nil || old.Status != alive.Status
	return alive, changed, wait, c.applyAlive(ctx, r, alive)
}

// applyAlive applies the condition, and nothing else, to one certain RTNode.
func (c *nodes) applyAlive(ctx context.Context, r *v1alpha1.RTNode, alive metav1.Condition) error {
	applied := &v1alpha1.RTNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RTNode"},
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: r.UID},
		Status:     v1alpha1.RTNodeStatus{Conditions: []metav1.Condition{alive}},
	}
	data, err := json.Marshal(applied)
	if err != nil {
		return fmt.Errorf("encoding condition %s: %w", alive.Type, err)
	}
	patch := client.RawPatch(types.ApplyPatchType, data)
	if err := c.Client.Status().Patch(ctx, applied, patch, client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying condition %s of RTNode %s: %w", alive.Type, r.Name, err)
	}
	return nil
}
