package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// decide records a plan on its pod. The controller evicts no pod before it has written this.
func (p *preemptions) decide(ctx context.Context, c preemptor, r room, now time.Time) error {
	cores := slices.DeleteFunc(r.Cores, func(id int) bool { return id == rt.NoCore })
	life := lifeFor(p.Store.Snapshot(), r.Victims)
	plan := state.Preemption{
		Node: r.Node, Core: cores[0], Further: cores[1:], Victims: r.Victims,
		Deadline: metav1.NewTime(now.Add(life).Truncate(time.Second)), Life: metav1.Duration{Duration: life},
	}
	if err := p.write(ctx, c, &plan, c.pod.Annotations[mcv1.AnnotationPreemptionRest]); err != nil {
		return err
	}
	c.memory.evicted = nil
	p.publish(events.Preempting(c.pod, string(c.pod.UID), r.Node, podNames(p.Store.Snapshot(), r.Victims)))
	return nil
}

// finish takes a plan off its pod, which lets those go on that were held back for it.
func (p *preemptions) finish(ctx context.Context, c preemptor, plan state.Preemption, end preemptionStep) error {
	if err := p.unguard(ctx, c.pod.UID, plan.Node); err != nil {
		return err // while the plan is on the pod, the controller ends it
	}
	inVain, rest, text := c.memory.inVain, c.memory.rest, ""
	if end.Failed {
		inVain++
		rest = p.Clock.Now().Add(restAfter(inVain))
		text = restText(inVain, rest)
	}
	if err := p.write(ctx, c, nil, text); err != nil {
		return err
	}
	c.memory.evicted, c.memory.inVain, c.memory.rest = nil, inVain, rest
	if err := p.release(ctx, c, plan, end.Outcome); err != nil {
		log.FromContext(ctx).Error(err, "withdrawing the action of a plan that has ended; it expires with the plan")
	}
	p.measure(plan)
	p.publish(events.PreemptionFinished(c.pod, string(c.pod.UID), end.Outcome))
	return nil
}

// waits records why victims are still there, or that nothing is in the way any longer. written is false when
// that is recorded already.
func (p *preemptions) waits(ctx context.Context, c preemptor, plan state.Preemption, why string) (written bool, err error) {
	if plan.Waits == why {
		return false, nil
	}
	plan.Waits = why
	return true, p.write(ctx, c, &plan, c.pod.Annotations[mcv1.AnnotationPreemptionRest])
}

// write puts a plan on its pod, or takes it off, with the rest that comes after, unless another writer has changed the
// pod since it was read.
func (p *preemptions) write(ctx context.Context, c preemptor, plan *state.Preemption, rest string) error {
	changed := c.pod.DeepCopy()
	delete(changed.Annotations, mcv1.AnnotationPreempting)
	delete(changed.Annotations, mcv1.AnnotationPreemptionRest)
	if rest != "" {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, mcv1.AnnotationPreemptionRest, rest)
	}
	if plan != nil {
		text, err := plan.Encode()
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, mcv1.AnnotationPreempting, text)
	}
	if err := p.Client.Patch(ctx, changed, ifUnchanged(c.pod)); err != nil {
		return fmt.Errorf("recording the preemption for pod %s: %w", c.view.Key(), err)
	}
	c.memory.plan, c.memory.written, c.memory.seen = plan, p.Clock.Now(), false
	return nil
}

// ifUnchanged is a patch that is refused when the pod is no longer the one that was read.
func ifUnchanged(pod *corev1.Pod) client.Patch {
	return client.MergeFromWithOptions(pod.DeepCopy(), client.MergeFromWithOptimisticLock{})
}

// podNames are those of pods, as namespace/name.
func podNames(snapshot *state.Snapshot, pods []types.UID) []string {
	var out []string
	for _, uid := range pods {
		if view, ok := snapshot.Pod(uid); ok {
			out = append(out, view.Key().String())
		}
	}
	return out
}
