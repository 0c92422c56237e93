package webhooks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// inPlace is how a pod and the migration of the one that was there before belong together.
const inPlace = "is in the place of one that is being migrated"

// byName tells whether the eviction is of whichever pod has the name. Those of kubectl are: one that is asked for again and again may be meant for a pod that has
// gone, and meet the one in its place.
func byName(eviction *policyv1.Eviction) bool {
	o := eviction.DeleteOptions
	return o == nil || o.Preconditions == nil || o.Preconditions.UID == nil && o.Preconditions.ResourceVersion == nil
}

// place answers for a pod in the place of one that was moved; known is false for others, and for one that may be evicted
// like any. While that migration is under way the pod may not be evicted: it may be the only one that has the state.
// After that an evictor may still mean the other pod, as it goes by the name that both have. The gate tells it that this
// pod has gone, unless a drain wants the node of this one empty.
func (g *Gate) place(ctx context.Context, req admission.Request, eviction *policyv1.Eviction, pod *state.PodView, all []v1alpha1.PodMigration) (answer admission.Response, known bool) {
	o := before(all, pod)
	switch {
	case o == nil:
		return answer, false
	case g.puts(o):
		return g.later(req, o, inPlace), true
	case byName(eviction) && o.Spec.PodName == pod.Name && g.lately(o) && g.leftAlone(ctx, o, pod):
		return g.gone(req, o, pod), true
	case !o.Status.Phase.Over():
		return g.pass(gateLate, fmt.Sprintf("PodMigration %s/%s has not ended within %s", o.Namespace, o.Name, g.Deadline)), true
	}
	return answer, false
}

// ending answers for a pod that goes, or is not there, as far as the cache knows: one of its name may be there already, in its place. That of a Surge has another.
func (g *Gate) ending(ctx context.Context, req admission.Request, eviction *policyv1.Eviction) admission.Response {
	if !byName(eviction) || dry(req, eviction) {
		return g.pass(gateOther, "")
	}
	migrations := &v1alpha1.PodMigrationList{}
	if err := g.Client.List(ctx, migrations, client.InNamespace(req.Namespace)); err != nil {
		return g.pass(gateFailed, fmt.Sprintf("it is not known whether a pod of its name takes its place: reading PodMigrations: %s", err))
	}
	for i := range migrations.Items {
		if o := &migrations.Items[i]; o.Spec.PodName == req.Name && o.Status.Strategy != v1alpha1.StrategySurge && under(o) && g.puts(o) {
			return g.later(req, o, "is being migrated")
		}
	}
	return g.pass(gateOther, "")
}

// before finds the migration of the pod in whose place another is: one that is under way, else the one that was over last; nil for none. That a pod is in the place
// of one whose name it has is on record only once it has a node.
func before(all []v1alpha1.PodMigration, pod *state.PodView) (found *v1alpha1.PodMigration) {
	for i := range all {
		o := &all[i]
		source, target := o.Spec.PodUID, types.UID("")
		if o.Status.Source != nil {
			source = o.Status.Source.PodUID
		}
		if o.Status.Target != nil {
			target = o.Status.Target.PodUID
		}
		if source == "" || source == pod.UID || o.Spec.DryRun {
			continue
		}
		marked := source == pod.Replaces || target == pod.UID
		switch {
		case under(o) && (marked || o.Spec.PodName == pod.Name):
			return o
		case marked && o.Status.Phase.Over() && (found == nil || found.Status.CompletionTime.Before(o.Status.CompletionTime)):
			found = o
		}
	}
	return found
}

// lately tells that who was put off for a migration may not have heard yet that it is over.
func (g *Gate) lately(o *v1alpha1.PodMigration) bool {
	return !o.Status.Phase.Over() || o.Status.CompletionTime != nil && g.Clock.Now().Before(o.Status.CompletionTime.Add(keptFor))
}

// leftAlone tells that no drain wants the pod's node empty: the pod has come to another node than that which its source
// has left, and pods like it may come there. The gate asks the API server, as a drain evicts right after it has
// cordoned. When the gate does not know, the eviction is an ordinary one.
func (g *Gate) leftAlone(ctx context.Context, o *v1alpha1.PodMigration, pod *state.PodView) bool {
	if pod.NodeName == "" {
		return true
	}
	node := &corev1.Node{}
	if o.Status.Source != nil && o.Status.Source.Node == pod.NodeName || g.Live.Get(ctx, types.NamespacedName{Name: pod.NodeName}, node) != nil {
		return false
	}
	return !node.Spec.Unschedulable && node.DeletionTimestamp == nil && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !pod.Tolerates(t)
	})
}

// gone tells the caller that the pod that it means is not there any longer.
func (g *Gate) gone(req admission.Request, o *v1alpha1.PodMigration, pod *state.PodView) admission.Response {
	evictions.WithLabelValues(gateGone).Inc()
	err := apierrors.NewNotFound(corev1.Resource("pods"), req.Name)
	err.ErrStatus.Message = fmt.Sprintf(
		"pod %s/%s has gone, moved by PodMigration %s (%s); another one of its name is in its place (node %q): to evict that one, name its UID %s as a precondition, or cordon its node",
		req.Namespace, req.Name, o.Name, o.Status.Phase, pod.NodeName, pod.UID)
	return refused(err)
}
