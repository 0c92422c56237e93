package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// another is when to look again whether room can be made for a pod that waits.
	another = 5 * time.Second
	// progress is when to look again at a plan under way, should nothing wake it before.
	progress = time.Second
	// lag is for how long the cache may not show what was written.
	lag = 10 * time.Second
)

// preemptions makes room for pending pods by evicting less critical ones. A plan is recorded on its pod
// before the controller evicts a pod, and every step is decided on it and the cache alone, so that another controller goes on
// from wherever this one stopped. One worker decides on all plans: two would promise the same core twice.
type preemptions struct {
	Dependencies
	// memories are of what the cache does not show (yet).
	memories map[types.NamespacedName]*recollection
}

// recollection is what is remembered of a pod.
type recollection struct {
	uid types.UID
	// plan was last written, at a time; seen: the cache has shown it.
	plan    *state.Preemption
	written time.Time
	seen    bool
	// evicted are victims that the cache may still show as if nothing had happened.
	evicted uids
	// rest is until when no other plan is made, after so many that were in vain one after the other.
	rest   time.Time
	inVain int
}

func newPreemptions(d Dependencies) *preemptions {
	return &preemptions{Dependencies: d, memories: map[types.NamespacedName]*recollection{}}
}

// Register implements controller.Controller.
func (p *preemptions) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("rtruntime.preemption").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(mayNeedRoom))).
		WatchesRawSource(onChange(p.Store, noRequests, waiting)).
		WatchesRawSource(onAction(p.Actions)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			// The longest wait is short: what failed must not keep a plan beyond its deadline.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soon, another),
		}).
		Complete(p)
}

// mayNeedRoom picks pods that wait for claims, and those with a plan.
func mayNeedRoom(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && (pod.Annotations[mcv1.AnnotationPreempting] != "" || pod.Spec.NodeName == "" && len(pod.Spec.ResourceClaims) > 0)
}

// noRequests reconciles no pod when the loop starts: the watch finds the pods that wait already.
func noRequests(*state.Snapshot) []reconcile.Request { return nil }

// waiting picks pods that have no node, and those with plans for nodes on which something has changed. The
// watch alone would not do: it may be ahead of the cache, which then says that a pod need not wait.
func waiting(s *state.Snapshot, change state.Change) []reconcile.Request {
	var out []reconcile.Request
	for _, key := range change.Pods {
		pod, ok := s.PodNamed(key.Namespace, key.Name)
		if ok && (pod.NodeName == "" && len(pod.Claims) > 0 || pod.Preempting != nil) {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	for _, plan := range s.Preemptions() {
		if slices.Contains(change.Nodes, plan.Node) {
			out = append(out, reconcile.Request{NamespacedName: plan.Pod.Key()})
		}
	}
	return out
}

// Reconcile takes one step for one pod.
func (p *preemptions) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if p.Store.Synced() != nil {
		return reconcile.Result{RequeueAfter: unsynced}, nil
	}
	defer p.count()
	pod := &corev1.Pod{}
	err := p.Client.Get(ctx, request.NamespacedName, pod)
	if apierrors.IsNotFound(err) {
		p.gone(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading pod %s: %w", request, err)
	}
	return settled(p.step(ctx, pod))
}

// step goes on with the pod's plan, or makes one.
func (p *preemptions) step(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	c := p.caseOf(pod)
	view, ok := p.Store.Snapshot().Pod(pod.UID)
	if !ok {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	c.view = view
	text := pod.Annotations[mcv1.AnnotationPreempting]
	if text == "" {
		return p.unplanned(ctx, c)
	}
	plan, err := state.ParsePreemption(text)
	if err != nil {
		return reconcile.Result{}, p.finish(ctx, c, plan, preemptionStep{Outcome: "The plan cannot be read: " + err.Error(), Failed: true})
	}
	c.memory.plan, c.memory.seen = &plan, true
	return p.proceed(ctx, c, plan)
}

// preemptor is a pod for which room is wanted.
type preemptor struct {
	pod    *corev1.Pod
	view   *state.PodView
	memory *recollection
}

// caseOf finds what is remembered of the pod, and forgets what was of an earlier one of its name.
func (p *preemptions) caseOf(pod *corev1.Pod) preemptor {
	key := client.ObjectKeyFromObject(pod)
	m := p.memories[key]
	if m != nil && m.uid != pod.UID {
		p.gone(key)
		m = nil
	}
	if m == nil {
		m = &recollection{uid: pod.UID}
		m.inVain, m.rest = restOf(pod, p.Clock.Now())
		p.memories[key] = m
	}
	return preemptor{pod: pod, memory: m}
}

// gone ends what was going on for a pod that is no longer there. Its plan went with it.
func (p *preemptions) gone(key types.NamespacedName) {
	if m := p.memories[key]; m != nil && m.plan != nil {
		p.measure(*m.plan)
	}
	delete(p.memories, key)
}

// unplanned makes a plan for a pod that has none, when it is time.
func (p *preemptions) unplanned(ctx context.Context, c preemptor) (reconcile.Result, error) {
	now := p.Clock.Now()
	if c.memory.plan != nil {
		if !c.memory.seen && now.Sub(c.memory.written) < lag {
			return reconcile.Result{RequeueAfter: soon}, nil
		}
		*c.memory = recollection{uid: c.memory.uid, rest: c.memory.rest, inVain: c.memory.inVain}
	}
	if !waitsForCore(c.view) {
		delete(p.memories, c.view.Key())
		return reconcile.Result{}, nil
	}
	ripe := c.view.UnschedulableSince.Add(p.Options.PreemptionDelay)
	if c.memory.rest.After(ripe) {
		ripe = c.memory.rest
	}
	if wait := ripe.Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if p.InFlight(ctx, c.pod) {
		return reconcile.Result{RequeueAfter: progress}, nil
	}
	r, err := p.find(ctx, c, now)
	if err != nil || len(r.Victims) == 0 {
		return reconcile.Result{RequeueAfter: another}, err
	}
	return reconcile.Result{RequeueAfter: soon}, p.decide(ctx, c, r, now)
}

// proceed takes the next step of a plan.
func (p *preemptions) proceed(ctx context.Context, c preemptor, plan state.Preemption) (reconcile.Result, error) {
	now := p.Clock.Now()
	s, machines := p.sceneFor(ctx, c, now)
	s.patient = true
	todo := nextStep(s, plan, now)
	if why := machines.why[plan.Node]; why != "" && todo.Failed {
		todo.Outcome += ": " + why
	}
	if why := p.calledOff(c, plan); why != "" && todo.Outcome == "" {
		todo = preemptionStep{Outcome: why, Failed: true}
	}
	if machines.err != nil && now.Before(plan.Deadline.Time) {
		return reconcile.Result{}, machines.err
	}
	if todo.Outcome != "" {
		return reconcile.Result{RequeueAfter: another}, p.finish(ctx, c, plan, todo)
	}
	wait := reconcile.Result{RequeueAfter: max(soon, min(progress, plan.Deadline.Sub(now)))}
	if len(todo.Evict) == 0 || p.comes(ctx, c, s, plan) {
		return wait, nil
	}
	return p.displace(ctx, c, plan, todo.Evict)
}

// comes tells whether a node comes for a pod for which a plan makes room, so that no further victims go. Once a victim
// has gone, the plan does not wait for a provisioner's decision. A provisioner that has only just begun, as that of a
// new leader, might decide after the plan ends, and that victim would have gone for nothing.
func (p *preemptions) comes(ctx context.Context, c preemptor, s scene, plan state.Preemption) bool {
	if s.displaced(plan) {
		return p.Planned(ctx, c.pod)
	}
	return p.InFlight(ctx, c.pod)
}

// plans are those under way, with those that the cache does not show yet.
func (p *preemptions) plans(snapshot *state.Snapshot) []state.Preempting {
	out := snapshot.Preemptions()
	for _, m := range p.memories {
		view, ok := snapshot.Pod(m.uid)
		if ok && m.plan != nil && !m.seen && view.Preempting == nil {
			out = append(out, state.Preempting{Pod: view, Criticality: criticalityOf(view), Preemption: *m.plan})
		}
	}
	return out
}

// count serves how many plans are under way.
func (p *preemptions) count() {
	under := live(p.plans(p.Store.Snapshot()), "", p.Clock.Now())
	metrics.QueueDepth.WithLabelValues(metrics.KindPreemption).Set(float64(len(under)))
}

// measure serves how long a plan that has ended took.
func (p *preemptions) measure(plan state.Preemption) {
	took := max(0, p.Clock.Since(begun(plan)))
	metrics.QueueWait.WithLabelValues(metrics.KindPreemption).Observe(took.Seconds())
}
