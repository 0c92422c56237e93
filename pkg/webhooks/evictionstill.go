package webhooks

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// still answers for a pod that stands still for a NodeCheckpoint, whatever its PodMigration says; known is false for others.
func (g *Gate) still(ctx context.Context, req admission.Request, pod types.UID) (answer admission.Response, known bool) {
	switch nc, err := g.standsFor(ctx, pod); {
	case err != nil:
		return g.pass(gateFailed, fmt.Sprintf("it is not known whether the pod stands still: reading NodeCheckpoints: %s", err)), true
	case nc == nil:
		return answer, false
	case g.abandoned(nc):
		return g.pass(gateLate, fmt.Sprintf("pod %s/%s stands still for NodeCheckpoint %s, and the agent of node %s has not let it go on within %s: what it has in memory is lost",
			req.Namespace, req.Name, nc.Name, nc.Spec.SourceNode, g.Deadline)), true
	default:
		return g.undone(req, nc.Name), true
	}
}

// own passes an eviction for an action of the queue, but of a pod that stands still for another action, which may be over and not be undone, and of one that goes on
// with the state of such a pod: what they have in memory may be nowhere else. What cannot be read keeps no eviction back.
func (g *Gate) own(ctx context.Context, req admission.Request, eviction *policyv1.Eviction) admission.Response {
	pod, ok := g.Pod(req.Namespace, req.Name)
	if !ok || !meant(eviction, pod.UID) || g.Synced() != nil || g.Deadline <= 0 {
		return g.pass(gateOwn, "")
	}
	action := eviction.Annotations[v1alpha1.AnnotationAction]
	if nc, err := g.standsFor(ctx, pod.UID); err == nil && nc != nil && nc.Name != action && !g.abandoned(nc) {
		return g.undone(req, nc.Name)
	}
	migrations := &v1alpha1.PodMigrationList{}
	if g.Client.List(ctx, migrations, client.InNamespace(req.Namespace)) != nil {
		return g.pass(gateOwn, "")
	}
	if o := before(migrations.Items, pod); o != nil && frozen(o) && o.Status.Action != action {
		return g.later(req, o, inPlace)
	}
	return g.pass(gateOwn, "")
}

// frozen tells whether the pod's state is on its way: the pod stands still, and to evict it would destroy what it is. Such a migration ends by
// its own time.
func frozen(o *v1alpha1.PodMigration) bool {
	return o.Status.Strategy == v1alpha1.StrategyCheckpoint && under(o)
}

// under tells whether a migration has begun to do something, and is not over.
func under(o *v1alpha1.PodMigration) bool {
	switch o.Status.Phase {
	case "", v1alpha1.MigrationPending, v1alpha1.MigrationReserving:
		return false
	}
	return !o.Status.Phase.Over()
}

// standsFor names the NodeCheckpoint for which the pod may stand still, whatever its PodMigration says: a rollback may take longer than it had. Until
// its agent has let it go on, the pod's state is nowhere else. One that is to go, as another has its state, may go. Nil: there is none.
func (g *Gate) standsFor(ctx context.Context, pod types.UID) (*v1alpha1.NodeCheckpoint, error) {
	states := &v1alpha1.NodeCheckpointList{}
	if err := g.Client.List(ctx, states); err != nil {
		return nil, err
	}
	for i := range states.Items {
		nc := &states.Items[i]
		if nc.Holds(pod) && !nc.Spec.Stage.GivenUp() {
			return nc, nil
		}
	}
	return nil, nil
}

// abandoned tells that the pod should have gone on long ago and its agent does not have it do so: one that is gone for good would hold up the drain
// of its node for ever. Agents let pods go on by themselves once the time of a NodeCheckpoint is over.
func (g *Gate) abandoned(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Spec.Stage == v1alpha1.StageDiscard && !g.Clock.Now().Before(nc.Spec.Expires.Add(g.Deadline))
}

// undone tells the caller to come again when the pod runs on.
func (g *Gate) undone(req admission.Request, nc string) admission.Response {
	evictions.WithLabelValues(gateLater).Inc()
	return refused(apierrors.NewTooManyRequests(fmt.Sprintf(
		"pod %s/%s stands still for NodeCheckpoint %s, and what it has in memory may be nowhere else: come again when that is undone, or has gone on", req.Namespace, req.Name, nc), int(comeBack.Seconds())))
}
