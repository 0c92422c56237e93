package migration

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// wish is how a pod is to go, and whether that is an order, or may become the next rung of the ladder.
type wish struct {
	strategy v1alpha1.MigrationStrategy
	order    bool
}

// wished is the strategy of the PodMigration, else of the McKube, else of the policy; it is empty if none names one.
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
	// bound: the pod goes with its state or not at all.
	bound bool
}

// chooser finds the node that a pod goes to, of those of a filter. The refusal says why there is none.
type chooser func(ctx context.Context, q question, only func(*state.Snapshot, string) string) (string, *refusal, error)

// find goes down the ladder, from the requested strategy to the first that is possible: Checkpoint, Surge, Restart. It uses Evict only
// where that is requested. A PodMigration and an action use the strategy that find returns alike.
func (d Dependencies) find(ctx context.Context, q question, choose chooser) (way, *refusal, error) {
	if no := d.excluded(q.pod.Namespace); no != nil {
		return way{}, no, nil
	}
	if no, err := d.arrested(ctx, q); no != nil || err != nil {
		return way{}, no, err
	}
	w := wished(q.object, q.view, q.policy)
	if w.strategy == v1alpha1.StrategyEvict && q.settled {
		w.strategy = v1alpha1.StrategyRestart
	}
	out := way{}
	if w.strategy == v1alpha1.StrategyCheckpoint {
		with, no, err := d.carried(ctx, q, w, choose)
		if err != nil || no != nil || with.strategy != "" {
			return with, no, err
		}
		out, w = with, wish{}
	}
	if no, err := d.owned(ctx, q, w); no != nil || err != nil {
		return way{}, no, err
	}
	if w.strategy == v1alpha1.StrategyEvict {
		return way{strategy: v1alpha1.StrategyEvict, stateless: out.stateless}, nil, nil
	}
	by, no, err := d.oneOrTwo(ctx, q, w)
	if no != nil || err != nil {
		return way{}, no, err
	}
	out.strategy = by
	target, no, err := choose(ctx, q, nil)
	out.target = target
	return out, no, err
}

// excluded is why pods of a namespace are not moved; nil: they may be.
func (d Dependencies) excluded(namespace string) *refusal {
	if d.Namespaces == nil || d.Namespaces.Has(namespace) {
		return nil
	}
	return &refusal{ReasonNamespaceExcluded, fmt.Sprintf("pods of namespace %s are not moved: the controller's --migration-namespaces does not name it", namespace)}
}

// restarts is Restart, unless nothing would bind what the pod's owner makes to a target, and that could come back to the pod's node.
func (d Dependencies) restarts(ctx context.Context, q question) (v1alpha1.MigrationStrategy, *refusal, error) {
	owner := metav1.GetControllerOf(q.pod)
	if d.Gating || owner == nil {
		return v1alpha1.StrategyRestart, nil, nil
	}
	if gone, err := d.closed(ctx, q.pod.Spec.NodeName); gone != "" || err != nil {
		return v1alpha1.StrategyRestart, nil, err
	}
	return "", &refusal{ReasonNotBound, unbinding(owner)}, nil
}

// oneOrTwo is Surge where a second pod is wished for and may serve before the one that goes, else Restart, unless Surge was an order.
func (d Dependencies) oneOrTwo(ctx context.Context, q question, w wish) (v1alpha1.MigrationStrategy, *refusal, error) {
	if q.alone || w.strategy != "" && w.strategy != v1alpha1.StrategySurge {
		return d.restarts(ctx, q)
	}
	why, err := d.single(ctx, q)
	if why == "" && err == nil {
		why, err = d.limping(ctx, q)
	}
	switch {
	case err != nil:
		return "", nil, err
	case why == "":
		return v1alpha1.StrategySurge, nil, nil
	case w.order:
		return "", &refusal{ReasonSurgeImpossible, why}, nil
	}
	return d.restarts(ctx, q)
}

// carried is the way of a pod that is to take its state along; without strategy it is only why the pod begins anew. One for which the user
// said Checkpoint does not begin anew unasked: what it has in memory would be lost.
func (d Dependencies) carried(ctx context.Context, q question, w wish, choose chooser) (way, *refusal, error) {
	bound := q.policy != nil && q.policy.Spec.RequireState
	target, no, err := d.withState(ctx, q, choose)
	switch {
	case err != nil:
		return way{}, nil, err
	case no == nil:
		return way{strategy: v1alpha1.StrategyCheckpoint, target: target, bound: bound}, nil, nil
	case bound || metav1.GetControllerOf(q.pod) == nil:
		return way{}, no, nil
	case w.order:
		return way{}, &refusal{no.reason, no.message + "; say strategy Restart, and it begins anew"}, nil
	}
	return way{stateless: no.message}, nil, nil
}

// ungoverned names the McKube that would not govern the replacement, as that has another name. With strategy Evict that does not matter:
// a user who asks for it gets an eviction.
func ungoverned(q question, w wish) *refusal {
	if why := q.view.LosesBudget(); why != "" && w.strategy != v1alpha1.StrategyEvict {
		return &refusal{ReasonGovernedByName, why}
	}
	return nil
}

// owned returns why no owner recreates the pod, where that is needed. The controller recreates an ownerless pod itself, if that is
// requested.
func (d Dependencies) owned(ctx context.Context, q question, w wish) (*refusal, error) {
	if metav1.GetControllerOf(q.pod) == nil {
		if why := imageless(q.pod); why != "" {
			return &refusal{ReasonImageUnknown, why}, nil
		}
		if w.strategy == v1alpha1.StrategyRestart && w.order {
			return ungoverned(q, w), nil
		}
		return &refusal{ReasonNoOwner, "no controller owns the pod, so nothing would make it again; say strategy Restart or Checkpoint"}, nil
	}
	why, err := d.orphanOf(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return &refusal{ReasonOwnerWantsNone, why}, nil
	}
	return ungoverned(q, w), nil
}

// orphanOf returns why no owner would recreate the pod. For a ReplicaSet's pod it uses the ReplicaSet that was read for the question.
func (d Dependencies) orphanOf(ctx context.Context, q question) (string, error) {
	if !isReplicaSet(q.pod) {
		if q.planned {
			return "", nil
		}
		return d.orphan(ctx, q.pod)
	}
	owner := *metav1.GetControllerOf(q.pod)
	if q.set == nil {
		return gone(owner).why, nil
	}
	return demanded(owner, q.set.Spec.Replicas).why, nil
}

// single is why no two pods of the owner may run for a while that do the same; empty: they may.
func (d Dependencies) single(ctx context.Context, q question) (string, error) {
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
	if why, err := d.recreated(ctx, set); why != "" || err != nil {
		return why, err
	}
	return d.exclusive(ctx, q.pod)
}

// limping names another pod of the ReplicaSet that is not ready. A Surge would wait for it before it cuts over, as that pod would go
// instead of the source. A PodMigration waits for it. An action without one answers a pressure that goes on meanwhile, so it uses the
// next strategy.
func (d Dependencies) limping(ctx context.Context, q question) (string, error) {
	if !q.settled {
		return "", nil
	}
	list := &corev1.PodList{}
	if err := d.Client.List(ctx, list, client.InNamespace(q.pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing pods of namespace %s: %w", q.pod.Namespace, err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.UID != q.pod.UID && metav1.IsControlledBy(p, q.set) && p.DeletionTimestamp == nil && !finished(p) && !ready(p) {
			return fmt.Sprintf("pod %s of the same ReplicaSet is not ready", p.Name), nil
		}
	}
	return "", nil
}

// recreated tells of a Deployment that never wants an old and a new pod at once.
func (d Dependencies) recreated(ctx context.Context, set *appsv1.ReplicaSet) (string, error) {
	by := metav1.GetControllerOf(set)
	if by == nil || by.Kind != "Deployment" {
		return "", nil
	}
	deployment := &appsv1.Deployment{}
	key := types.NamespacedName{Namespace: set.Namespace, Name: by.Name}
	err := d.Client.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) { // only the API server may say so
		err = d.API.Get(ctx, key, deployment)
	}
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("Deployment %s is gone", by.Name), nil
	case err != nil:
		return "", fmt.Errorf("reading Deployment %s/%s: %w", set.Namespace, by.Name, err)
	case deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return fmt.Sprintf("Deployment %s has strategy Recreate: no two of its pods may run at once", deployment.Name), nil
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
	if needsHandover(metav1.GetControllerOf(q.pod)) {
		return "", nil
	}
	if no := ungoverned(q, wish{}); no != nil {
		return no.message, nil
	}
	return "", nil
}

// withState is where the pod goes with its state, or why it cannot take it along.
func (d Dependencies) withState(ctx context.Context, q question, choose chooser) (string, *refusal, error) {
	for _, ask := range []func(context.Context, question) (string, error){d.switchedOff, d.unique, renamed, d.partial, leavesBehind, untimely, d.unwritten} {
		if why, err := ask(ctx, q); why != "" || err != nil {
			return "", lost(why), err
		}
	}
	target, refused, err := choose(ctx, q, func(s *state.Snapshot, node string) string { return incapable(s, node, true) })
	if refused != nil {
		return "", lost(refused.message), err
	}
	return target, nil, err
}

// lost is the refusal of a pod whose state stays behind.
func lost(why string) *refusal {
	return &refusal{ReasonStateImpossible, "its state cannot come along: " + why}
}

func (d Dependencies) switchedOff(_ context.Context, q question) (string, error) {
	if !d.Checkpointing || q.policy != nil && q.policy.Spec.Checkpointing != nil && !*q.policy.Spec.Checkpointing {
		return "checkpointing is switched off", nil
	}
	return "", nil
}

// unique is why the pod's owner, or what it has, does not bear a copy under another name.
func (d Dependencies) unique(ctx context.Context, q question) (string, error) {
	by := metav1.GetControllerOf(q.pod)
	switch {
	case by == nil:
		return d.exclusive(ctx, q.pod)
	case needsHandover(by):
		if why, err := d.unreplaced(ctx, q); why != "" || err != nil {
			return why, err
		}
		return d.orphanOf(ctx, q)
	case !isReplicaSet(q.pod):
		return fmt.Sprintf("%s %s makes its pods anew", by.Kind, by.Name), nil
	}
	if why, err := d.orphanOf(ctx, q); why != "" || err != nil {
		return why, err
	}
	return d.single(ctx, q)
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

func (d Dependencies) unwritten(_ context.Context, q question) (string, error) {
	return incapable(d.Store.Snapshot(), q.pod.Spec.NodeName, false), nil
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
