package migration

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// wish is how a pod is to go, and whether that is an order, or may become the next rung of the ladder.
type wish struct {
	strategy v1alpha1.MigrationStrategy
	order    bool
}

// wished is what the PodMigration says, else the McKube, else the policy; empty: nobody says anything.
func wished(o *v1alpha1.PodMigration, view *state.PodView, policy *v1alpha1.MigrationPolicy) wish {
	if o.Spec.Strategy != "" {
		return wish{o.Spec.Strategy, true}
	}
	for _, g := range view.Governed {
		if m := g.McKube.Spec.Migration; m != nil {
			switch m.Policy {
			case mcv1.MigrationCheckpoint:
				return wish{v1alpha1.StrategyCheckpoint, false}
			case mcv1.MigrationRestart:
				return wish{v1alpha1.StrategyRestart, false}
			}
		}
	}
	if policy != nil {
		return wish{policy.Spec.Strategy, false}
	}
	return wish{}
}

// way is how a pod goes, where to, and what it cannot take along.
type way struct {
	strategy v1alpha1.MigrationStrategy
	target   string
	// stateless is why the pod begins anew though its state was to come along.
	stateless string
}

// find goes down the ladder, from what is wished for, to the first rung that holds: Checkpoint, Surge, Restart. Evict is only
// for whom it is said.
func (r *Reconciler) find(ctx context.Context, q question) (way, *refusal, error) {
	w := wished(q.object, q.view, q.policy)
	out := way{}
	if w.strategy == v1alpha1.StrategyCheckpoint {
		target, no, err := r.withState(ctx, q)
		if err != nil || no == nil {
			return way{strategy: v1alpha1.StrategyCheckpoint, target: target}, nil, err
		}
		if q.policy != nil && q.policy.Spec.RequireState || metav1.GetControllerOf(q.pod) == nil {
			return way{}, no, nil
		}
		out.stateless, w.strategy, w.order = no.message, "", false
	}
	if no, err := r.owned(ctx, q, w); no != nil || err != nil {
		return way{}, no, err
	}
	if w.strategy == v1alpha1.StrategyEvict {
		return way{strategy: v1alpha1.StrategyEvict, stateless: out.stateless}, nil, nil
	}
	out.strategy = v1alpha1.StrategyRestart
	if w.strategy == "" || w.strategy == v1alpha1.StrategySurge {
		why, err := r.single(ctx, q)
		switch {
		case err != nil:
			return way{}, nil, err
		case why == "":
			out.strategy = v1alpha1.StrategySurge
		case w.order:
			return way{}, &refusal{ReasonSurgeImpossible, why}, nil
		}
	}
	target, no, err := r.choose(ctx, q, nil)
	out.target = target
	return out, no, err
}

// ungoverned is which McKube would not govern the pod in the source's place, as that has another name. Who says Evict gets what an eviction is.
func ungoverned(q question, w wish) *refusal {
	if why := q.view.Forsaken(); why != "" && w.strategy != v1alpha1.StrategyEvict {
		return &refusal{ReasonGovernedByName, why}
	}
	return nil
}

// owned is why nobody makes the pod again, where that is needed: a pod of its own is made again here, if that is said.
func (r *Reconciler) owned(ctx context.Context, q question, w wish) (*refusal, error) {
	if metav1.GetControllerOf(q.pod) == nil {
		if why := imageless(q.pod); why != "" {
			return &refusal{ReasonImageUnknown, why}, nil
		}
		if w.strategy == v1alpha1.StrategyRestart && w.order {
			return ungoverned(q, w), nil
		}
		return &refusal{ReasonNoOwner, "no controller owns the pod, so nothing would make it again; say strategy Restart or Checkpoint"}, nil
	}
	why, err := r.orphanOf(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return &refusal{ReasonOwnerWantsNone, why}, nil
	}
	return ungoverned(q, w), nil
}

// orphanOf is why nobody would make the pod again, by the ReplicaSet that was read for the question, if it is one's.
func (r *Reconciler) orphanOf(ctx context.Context, q question) (string, error) {
	if !isReplicaSet(q.pod) {
		return r.orphan(ctx, q.pod)
	}
	owner := *metav1.GetControllerOf(q.pod)
	if q.set == nil {
		return gone(owner).why, nil
	}
	return demanded(owner, q.set.Spec.Replicas).why, nil
}

// single is why no two pods of the owner may run for a while that do the same; empty: they may.
func (r *Reconciler) single(ctx context.Context, q question) (string, error) {
	if !isReplicaSet(q.pod) {
		return "only a ReplicaSet's pods may be there twice for a while", nil
	}
	set := q.set
	switch {
	case set == nil:
		return "the pod's ReplicaSet is gone", nil
	case set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "":
		return fmt.Sprintf("ReplicaSet %s has no label %s by which a copy could be kept from it for a while", set.Name, appsv1.DefaultDeploymentUniqueLabelKey), nil
	}
	if why, err := r.recreated(ctx, set); why != "" || err != nil {
		return why, err
	}
	return r.exclusive(ctx, q.pod)
}

// recreated tells of a Deployment that never wants an old and a new pod at once.
func (r *Reconciler) recreated(ctx context.Context, set *appsv1.ReplicaSet) (string, error) {
	by := metav1.GetControllerOf(set)
	if by == nil || by.Kind != "Deployment" {
		return "", nil
	}
	d := &appsv1.Deployment{}
	key := types.NamespacedName{Namespace: set.Namespace, Name: by.Name}
	err := r.Client.Get(ctx, key, d)
	if apierrors.IsNotFound(err) { // only the API server may say so
		err = r.API.Get(ctx, key, d)
	}
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("Deployment %s is gone", by.Name), nil
	case err != nil:
		return "", fmt.Errorf("reading Deployment %s/%s: %w", set.Namespace, by.Name, err)
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return fmt.Sprintf("Deployment %s has strategy Recreate: no two of its pods may run at once", d.Name), nil
	}
	return "", nil
}

// exclusive is which volume only one node or pod may have; empty: there is none.
func (d Dependencies) exclusive(ctx context.Context, pod *corev1.Pod) (string, error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
		if err := d.Client.Get(ctx, key, claim); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Sprintf("PersistentVolumeClaim %s does not exist", key.Name), nil
			}
			return "", fmt.Errorf("reading PersistentVolumeClaim %s: %w", key, err)
		}
		for _, mode := range claim.Spec.AccessModes {
			if mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod {
				return fmt.Sprintf("PersistentVolumeClaim %s is %s: two nodes cannot have it at once", claim.Name, mode), nil
			}
		}
	}
	return "", nil
}

// renamed is which McKube would not govern a copy that has another name.
func renamed(_ context.Context, q question) (string, error) {
	if heritable(metav1.GetControllerOf(q.pod)) {
		return "", nil
	}
	if no := ungoverned(q, wish{}); no != nil {
		return no.message, nil
	}
	return "", nil
}

// withState is where the pod goes with its state, or why it cannot take it along.
func (r *Reconciler) withState(ctx context.Context, q question) (string, *refusal, error) {
	for _, ask := range []func(context.Context, question) (string, error){r.switchedOff, r.unique, renamed, r.partial, leavesBehind, untimely, r.unwritten} {
		if why, err := ask(ctx, q); why != "" || err != nil {
			return "", lost(why), err
		}
	}
	target, refused, err := r.choose(ctx, q, func(s *state.Snapshot, node string) string { return incapable(s, node, true) })
	if refused != nil {
		return "", lost(refused.message), err
	}
	return target, nil, err
}

// lost is the refusal of a pod whose state stays behind.
func lost(why string) *refusal {
	return &refusal{ReasonStateImpossible, "its state cannot come along: " + why}
}

func (r *Reconciler) switchedOff(_ context.Context, q question) (string, error) {
	if !r.Checkpointing || q.policy != nil && q.policy.Spec.Checkpointing != nil && !*q.policy.Spec.Checkpointing {
		return "checkpointing is switched off", nil
	}
	return "", nil
}

// unique is why the pod's owner, or what it has, does not bear a copy under another name.
func (r *Reconciler) unique(ctx context.Context, q question) (string, error) {
	by := metav1.GetControllerOf(q.pod)
	switch {
	case by == nil:
		return r.exclusive(ctx, q.pod)
	case heritable(by):
		return r.orphan(ctx, q.pod)
	case !isReplicaSet(q.pod):
		return fmt.Sprintf("%s %s makes its pods anew", by.Kind, by.Name), nil
	}
	if why, err := r.orphanOf(ctx, q); why != "" || err != nil {
		return why, err
	}
	return r.single(ctx, q)
}

// leavesBehind names a volume that is a directory of the node.
func leavesBehind(_ context.Context, q question) (string, error) {
	for _, v := range q.pod.Spec.Volumes {
		if v.HostPath != nil || v.EmptyDir != nil || v.Ephemeral != nil || v.CSI != nil {
			return fmt.Sprintf("what is in volume %s stays behind", v.Name), nil
		}
	}
	return "", nil
}

func (r *Reconciler) unwritten(_ context.Context, q question) (string, error) {
	return incapable(r.Store.Snapshot(), q.pod.Spec.NodeName, false), nil
}

// incapable is why a node cannot write, or restore, the state of containers, as its agent says; empty: it can.
func incapable(snapshot *state.Snapshot, node string, restore bool) string {
	view, ok := snapshot.NodeView(node)
	if !ok || view.RTNode == nil || view.RTNode.Status.Checkpoint == nil {
		return fmt.Sprintf("the agent of node %s does not say that it can", node)
	}
	can := view.RTNode.Status.Checkpoint
	switch {
	case !restore && !can.Checkpoints:
		return fmt.Sprintf("node %s cannot write the state of containers: %s", node, can.Message)
	case restore && !can.Restores:
		return fmt.Sprintf("node %s cannot restore containers: %s", node, can.Message)
	}
	return ""
}
