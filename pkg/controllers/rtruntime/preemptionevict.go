package rtruntime

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// displace evicts the first of the victims, provided that all of them could be, which would else go for nothing, and that it
// is the plan's turn in the orchestration queue. Rivals that wait for the same node go before. The rest is decided anew,
// each time.
func (p *preemptions) displace(ctx context.Context, c preemptor, plan state.Preemption, uids []types.UID) (reconcile.Result, error) {
	ok, why, err := p.mayEvict(ctx, c, plan)
	if err != nil {
		return reconcile.Result{}, err
	}
	victims, err := p.read(ctx, uids)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(victims) < len(uids) {
		return reconcile.Result{RequeueAfter: soon}, nil // some have just gone
	}
	refused, err := p.refusals(ctx, victims)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case refused != nil:
		return p.hold(ctx, c, plan, *refused)
	case !ok:
		return p.queued(ctx, c, plan, why)
	}
	return p.strike(ctx, c, plan, victims[0])
}

// strike evicts a victim, once no rivals are left.
func (p *preemptions) strike(ctx context.Context, c preemptor, plan state.Preemption, victim *corev1.Pod) (reconcile.Result, error) {
	if written, err := p.waits(ctx, c, plan, ""); written || err != nil {
		return reconcile.Result{RequeueAfter: soon}, err
	}
	if err := p.unchanged(ctx, c); err != nil {
		return reconcile.Result{}, err
	}
	left, refused, err := p.clear(ctx, c, plan)
	if err == nil && refused == nil && !left {
		refused, err = p.evict(ctx, victim)
	}
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case refused != nil:
		return p.hold(ctx, c, plan, *refused)
	case !left:
		p.evicted(c, plan, victim)
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// queued says what the plan's turn waits for; without why, the queue has not looked at it yet. The queue tells when it is
// the plan's turn, so looking again is for the plan alone, which others may have made impossible, and for its deadline.
func (p *preemptions) queued(ctx context.Context, c preemptor, plan state.Preemption, why string) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: max(soon, min(another, plan.Deadline.Sub(p.Clock.Now())))}
	if why == "" {
		return again, nil
	}
	_, err := p.waits(ctx, c, plan, why)
	return again, err
}

// unchanged asks the API server, and not the cache, whether the pod is still as it was read: without a node,
// and with its plan.
func (p *preemptions) unchanged(ctx context.Context, c preemptor) error {
	if err := p.Client.Patch(ctx, c.pod.DeepCopy(), ifUnchanged(c.pod), client.DryRunAll); err != nil {
		return fmt.Errorf("making sure that pod %s still waits: %w", c.view.Key(), err)
	}
	return nil
}

// hold says why a victim is still there; the plan goes on until its deadline.
func (p *preemptions) hold(ctx context.Context, c preemptor, plan state.Preemption, r veto) (reconcile.Result, error) {
	victim := client.ObjectKeyFromObject(r.pod).String()
	if _, err := p.waits(ctx, c, plan, fmt.Sprintf("pod %s may not be evicted yet: %s", victim, r.why)); err != nil {
		return reconcile.Result{}, err
	}
	p.publish(events.PreemptionWaits(c.pod, string(c.pod.UID), victim, r.why))
	return reconcile.Result{RequeueAfter: backoff(plan, p.Clock.Now())}, nil
}

// evicted remembers and tells that a victim goes.
func (p *preemptions) evicted(c preemptor, plan state.Preemption, victim *corev1.Pod) {
	c.memory.evicted = c.memory.evicted.with(victim.UID)
	metrics.Preemptions.WithLabelValues(metrics.ActionEvict).Inc()
	criticality := criticalityOf(c.view).String()
	p.publish(events.Preempted(victim, string(victim.UID), c.view.Key().String(), criticality, plan.Node))
	view, ok := p.Store.Snapshot().Pod(victim.UID)
	if !ok {
		return
	}
	for _, g := range view.Governed {
		p.publish(events.Preempted(g.McKube, string(g.McKube.UID)+string(victim.UID), c.view.Key().String(), criticality, plan.Node))
	}
}

// refusals is the first of the victims that may not be evicted, alone or together with the others; nil
// when all may, as far as the API server can tell beforehand.
func (p *preemptions) refusals(ctx context.Context, victims []*corev1.Pod) (*veto, error) {
	kept, err := eviction.Together(ctx, p.Client, victims)
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 {
		return &veto{kept[0].Pod, kept[0].Why}, nil
	}
	for _, v := range victims {
		if refused, err := p.evict(ctx, v, client.DryRunAll); refused != nil || err != nil {
			return refused, err
		}
	}
	return nil, nil
}

// evict asks the API server to evict this very pod. That it may not go is a veto, not an error. The gate that makes a
// migration of evictions lets it pass, as one for an action of the queue: a migration would wait for that action.
func (p *preemptions) evict(ctx context.Context, pod *corev1.Pod, options ...client.SubResourceCreateOption) (*veto, error) {
	answer, err := eviction.AskAs(ctx, p.Client, pod, map[string]string{v1alpha1.AnnotationAction: reasonNoCore}, options...)
	switch {
	case err != nil:
		return nil, err
	case answer.Refused():
		return &veto{pod, answer.Why}, nil
	case answer.Verdict == eviction.Gone: // the next look sees it
		return nil, fmt.Errorf("evicting pod %s/%s: it has just gone", pod.Namespace, pod.Name)
	}
	return nil, nil
}
