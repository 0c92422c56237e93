package migration

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// question is what is asked about a migration before it begins.
type question struct {
	object  *v1alpha1.PodMigration
	pod     *corev1.Pod
	view    *state.PodView
	policy  *v1alpha1.MigrationPolicy
	trigger v1alpha1.MigrationTrigger
	// set is the ReplicaSet that makes the pod again; nil: it is gone, or not of that kind.
	set *appsv1.ReplicaSet
	// asked is the node that was asked for; empty: any but those that were tried.
	asked string
	tried []string
	// settled: an action that existed first goes to that node, even if target selection would choose another. planned: the answer is for
	// planning only. Then no API request is made about an owner of a kind other than ReplicaSet, of which there is no cache.
	settled, planned bool
	// alone: no other pod is to serve before it goes, though one may.
	alone bool
	// others are all migrations.
	others []v1alpha1.PodMigration
}

// answer is what was decided: a way, or why there is none, or what has to be waited for.
type answer struct {
	way
	decision *v1alpha1.MigrationDecision
	refusal  *refusal
	waits    *refusal
}

// admit decides on a migration, and puts that on record before anything is done.
func (r *Reconciler) admit(ctx context.Context, o *v1alpha1.PodMigration) (time.Duration, error) {
	if why := unwanted(o); why != "" {
		return 0, r.aborted(ctx, o, ReasonUnwanted, why+", before anything was done")
	}
	if r.unseen(o.UID) {
		return unready, nil
	}
	q, no, err := r.ask(ctx, o)
	if err != nil {
		return 0, err
	}
	if no != nil {
		return 0, r.refuse(ctx, o, nil, no)
	}
	if q == nil {
		return unready, r.noteDelay(ctx, o, ReasonPodNotSeen, "waits until the controller's cache shows the pod on its node")
	}
	a, err := r.decide(ctx, *q)
	switch {
	case err != nil:
		r.forget(o.UID)
		return 0, err
	case a.refusal != nil:
		r.forget(o.UID)
		return 0, r.refuse(ctx, o, a.decision, a.refusal)
	case a.waits != nil && r.left(o) <= 0:
		return 0, r.aborted(ctx, o, ReasonWaitedTooLong, r.waited(o, a.waits.message))
	case a.waits != nil:
		r.forget(o.UID)
		return min(again, r.left(o)), r.note(ctx, o, a.waits)
	case o.Spec.DryRun:
		r.forget(o.UID)
		return 0, r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
			r.admitted(s, *q, a, ReasonDryRun)
			s.Message = "Dry run: " + would(*q, a)
			advance(s, v1alpha1.MigrationDryRun, metav1.NewMicroTime(r.Clock.Now()))
			setCondition(s, v1alpha1.ConditionMigrationDone, metav1.ConditionTrue, ReasonDryRun, "nothing was done", r.Clock.Now())
		})
	}
	if err := r.settle(ctx, o, *q, a); err != nil {
		r.forget(o.UID) // it may be gone; if not it is decided on again
		return 0, err
	}
	return again, nil // storing it triggers another reconcile; other PodMigrations that wait for a decision come first
}

// unseen tells whether it was decided on, and stored, which the cache does not show yet.
func (r *Reconciler) unseen(uid types.UID) bool {
	r.choosing.Lock()
	defer r.choosing.Unlock()
	mine := r.fresh[uid]
	if mine == nil {
		return false
	}
	at := meta.FindStatusCondition(mine.Status.Conditions, v1alpha1.ConditionMigrationAdmitted)
	return at != nil && r.Clock.Now().Sub(at.LastTransitionTime.Time) < again
}

// settle puts on record what was decided. The object is then as it is stored.
func (r *Reconciler) settle(ctx context.Context, o *v1alpha1.PodMigration, q question, a answer) error {
	held, err := r.hold(ctx, o)
	if err != nil {
		return err
	}
	*o = *held
	return r.update(ctx, o, func(s *v1alpha1.PodMigrationStatus) {
		r.admitted(s, q, a, ReasonAdmitted)
		s.Message = would(q, a)
	})
}

// hold keeps the object until nothing of it is under way.
func (r *Reconciler) hold(ctx context.Context, o *v1alpha1.PodMigration) (*v1alpha1.PodMigration, error) {
	after := o.DeepCopy()
	if !controllerutil.AddFinalizer(after, v1alpha1.FinalizerMigration) {
		return after, nil
	}
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("keeping PodMigration %s/%s: %w", o.Namespace, o.Name, err)
	}
	return after, nil
}

// ask collects what there is to decide on. Neither question nor refusal: what is needed is not seen yet.
func (r *Reconciler) ask(ctx context.Context, o *v1alpha1.PodMigration) (*question, *refusal, error) {
	pod, no, err := r.movable(ctx, o)
	if err != nil || no != nil {
		return nil, no, err
	}
	view, known := r.Store.Snapshot().Pod(pod.UID)
	if !known || view.NodeName == "" {
		return nil, nil, nil
	}
	if m := immovable(view); m != nil {
		return nil, &refusal{ReasonMcKubeNever, fmt.Sprintf("McKube %s says migration.policy Never", m.Name)}, nil
	}
	rule, err := r.Judge.For(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	q := &question{object: o, pod: pod, view: view, policy: rule, trigger: o.Spec.Trigger, asked: o.Spec.TargetNode}
	if isReplicaSet(pod) {
		if q.set, err = r.replicaSet(ctx, pod); err != nil {
			return nil, nil, err
		}
	}
	return q, nil, nil
}

// movable is the pod of a migration, or why it cannot be moved. That it cannot, only the API server may say.
func (r *Reconciler) movable(ctx context.Context, o *v1alpha1.PodMigration) (pod *corev1.Pod, no *refusal, err error) {
	for _, from := range []client.Reader{r.Client, r.API} {
		pod = &corev1.Pod{}
		err = from.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.PodName}, pod)
		switch {
		case apierrors.IsNotFound(err):
			no = &refusal{ReasonPodNotFound, fmt.Sprintf("there is no pod %s/%s", o.Namespace, o.Spec.PodName)}
		case err != nil:
			return nil, nil, fmt.Errorf("reading pod %s/%s: %w", o.Namespace, o.Spec.PodName, err)
		default:
			no = immobile(o, pod)
		}
		if no == nil {
			return pod, nil, nil
		}
	}
	return nil, no, nil
}

// decide finds the way, keeps it from being given away, and asks whether it may be gone.
func (r *Reconciler) decide(ctx context.Context, q question) (answer, error) {
	a, err := r.propose(ctx, q)
	if err != nil || a.refusal != nil || a.waits != nil {
		return a, err
	}
	d, err := r.judged(ctx, q, a.target)
	if err != nil {
		return answer{}, err
	}
	if a.decision = &d; !d.Allowed {
		a.refusal = &refusal{ReasonPolicyDenied, "policy does not allow it: " + d.Reason}
	}
	return a, nil
}

// judged is what policy says to it now.
func (d Dependencies) judged(ctx context.Context, q question, target string) (v1alpha1.MigrationDecision, error) {
	now := d.Clock.Now()
	return d.Judge.Decide(ctx, policy.Question{
		Pod: q.pod, Source: d.node(ctx, q.pod.Spec.NodeName), Target: d.node(ctx, target), Trigger: q.trigger,
		McKube: governor(q.view), Budget: policy.Budget(limits(q), policy.UsageOf(moveOf(q, target), q.others, now)), Now: now,
	})
}

// propose finds the way, one decision at a time, so that no two take one place.
func (r *Reconciler) propose(ctx context.Context, q question) (answer, error) {
	r.choosing.Lock()
	defer r.choosing.Unlock()
	var err error
	r.Store.ReleaseMigration(decided(q.object.UID))
	if q.others, err = r.all(ctx); err != nil {
		return answer{}, err
	}
	for i := range q.others {
		if other := &q.others[i]; rivals(other, q) {
			return answer{refusal: &refusal{ReasonAlreadyMigrating, fmt.Sprintf("PodMigration %s moves the pod", other.Name)}}, nil
		}
	}
	w, no, err := r.find(ctx, q, r.choose)
	if no != nil && no.reason == ReasonStandsStill { // which passes: it goes on, or has gone
		return answer{waits: no}, err
	}
	if no != nil && no.reason == ReasonNoTarget && r.awaitsNode(q) {
		return answer{waits: &refusal{ReasonWaitsForNode, "waits for a node to be opened, as its own is being deleted: " + no.message}}, err
	}
	if err != nil || no != nil {
		return answer{refusal: no}, err
	}
	if why, err := r.crowded(ctx, q); why != "" || err != nil {
		return answer{waits: &refusal{ReasonWaitsForLimit, why}}, err
	}
	a := answer{way: w}
	if why := policy.Limited(limits(q), policy.UsageOf(moveOf(q, a.target), q.others, r.Clock.Now()), moveOf(q, a.target)); why != "" {
		return answer{waits: &refusal{ReasonWaitsForLimit, why}}, nil
	}
	if !q.object.Spec.DryRun {
		mine := q.object.DeepCopy()
		r.admitted(&mine.Status, q, a, ReasonAdmitted)
		r.fresh[mine.UID] = mine
		err = r.keep(mine.UID, a.target, q.pod)
	}
	return a, err
}

// awaitsNode reports whether a node is being opened for the pod, as Karpenter does for pods of a node that it deletes (expiry,
// interruption, drift). The webhook has the eviction of the pod repeated meanwhile, so the pod does not end before it has a place.
func (r *Reconciler) awaitsNode(q question) bool {
	n, known := r.Store.Snapshot().NodeView(q.pod.Spec.NodeName)
	return known && n.Deleting && q.asked == "" && !q.object.Spec.DryRun
}

// rivals tells whether another migration has the pod already.
func rivals(other *v1alpha1.PodMigration, q question) bool {
	return other.UID != q.object.UID && !other.Status.Phase.Over() && other.Status.Strategy != "" && other.Status.Source != nil && other.Status.Source.PodUID == q.pod.UID
}

// all returns all migrations, as the cache shows them, with the decisions made since on the version that was read. A migration that is
// admitted, and not adrift, counts as under way.
func (r *Reconciler) all(ctx context.Context) ([]v1alpha1.PodMigration, error) {
	list := &v1alpha1.PodMigrationList{}
	if err := r.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing PodMigrations: %w", err)
	}
	r.prune(list.Items)
	for i := range list.Items {
		o := &list.Items[i]
		if newer := r.fresh[o.UID]; newer != nil {
			if o.Status.Strategy == "" || o.ResourceVersion == newer.ResourceVersion {
				o.Status = *newer.Status.DeepCopy()
			} else {
				delete(r.fresh, o.UID)
			}
		}
		if o.Status.Strategy != "" && !adrift(o) && (o.Status.Phase == "" || o.Status.Phase == v1alpha1.MigrationPending) {
			o.Status.Phase = v1alpha1.MigrationReserving
		}
	}
	return list.Items, nil
}

// prune forgets decisions of migrations that are no longer there. The caller has the lock.
func (r *Reconciler) prune(there []v1alpha1.PodMigration) {
	known := map[types.UID]bool{}
	for i := range there {
		known[there[i].UID] = true
	}
	for uid := range r.fresh {
		if !known[uid] {
			delete(r.fresh, uid)
		}
	}
	for uid := range r.kept {
		if !known[uid] {
			delete(r.kept, uid)
			r.Store.ReleaseMigration(decided(uid))
		}
	}
}

// forget a decision that came to nothing, or that everybody sees.
func (r *Reconciler) forget(uid types.UID) {
	r.choosing.Lock()
	defer r.choosing.Unlock()
	delete(r.fresh, uid)
	delete(r.kept, uid)
	r.Store.ReleaseMigration(decided(uid))
}

func limits(q question) *v1alpha1.MigrationLimits {
	if q.policy == nil {
		return nil
	}
	return q.policy.Spec.Limits
}

func moveOf(q question, target string) policy.Move {
	m := policy.Move{UID: q.object.UID, Namespace: q.pod.Namespace, Source: q.pod.Spec.NodeName, Target: target, Trigger: q.trigger}
	if q.policy != nil {
		m.Policy = q.policy.Name
	}
	if by := metav1.GetControllerOf(q.pod); by != nil {
		m.Workload = by.UID
	}
	return m
}

// node is the node that a policy is evaluated against. It is nil where the controller does not know the node.
func (d Dependencies) node(ctx context.Context, name string) *corev1.Node {
	node := &corev1.Node{}
	if name == "" || d.Client.Get(ctx, types.NamespacedName{Name: name}, node) != nil {
		return nil
	}
	return node
}
