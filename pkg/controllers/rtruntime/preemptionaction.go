package rtruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// reasonNoCore is why pods are preempted, as users see it.
const reasonNoCore = "NoCore"

// Actions is the orchestration queue, as far as preemption needs it.
type Actions interface {
	Submit(ctx context.Context, r orchestration.Request) (orchestration.Ticket, error)
	Find(r orchestration.Request) (orchestration.Ticket, bool)
	Withdraw(ctx context.Context, name, why string) error
	Wake(name string)
	Listen(f func(*v1alpha1.RTAction))
}

// onAction wakes the loop for the pod of a preemption of which the queue has something new to tell. Like onChange, it listens
// from now on, and drops what it hears until the loop starts.
func onAction(actions Actions) source.Source {
	var started atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
	actions.Listen(func(o *v1alpha1.RTAction) {
		queue, pod := started.Load(), o.Spec.Beneficiary
		if queue != nil && o.Spec.Reason == reasonNoCore && pod.Kind == "Pod" {
			(*queue).Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}})
		}
	})
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		started.Store(&queue)
		return nil
	})
}

// actionOf is the action that carries a plan out: pods are evicted while it runs, and at no other time. Each plan is a
// cause of its own, so that what becomes of one says nothing about the next.
func (p *preemptions) actionOf(c preemptor, plan state.Preemption) orchestration.Request {
	r := orchestration.Request{
		Kind: rules.Preempt, Reason: reasonNoCore, Cause: causeOf(c.view.UID, plan), Node: plan.Node,
		Message: fmt.Sprintf("Pod %s of criticality %s finds no core elsewhere", c.view.Key(), criticalityOf(c.view)),
		Beneficiary: v1alpha1.ActionBeneficiary{
			Kind: "Pod", Namespace: c.view.Namespace, Name: c.view.Name, UID: c.view.UID, Criticality: criticalityOf(c.view).String(),
		},
		StartBy: plan.Deadline.Time, Timeout: plan.Life.Duration,
	}
	snapshot := p.Store.Snapshot()
	for _, uid := range plan.Victims {
		victim := v1alpha1.ActionPod{UID: uid, Namespace: c.view.Namespace, Name: string(uid)} // gone, if it is unknown
		if view, ok := snapshot.Pod(uid); ok {
			victim.Namespace, victim.Name = view.Namespace, view.Name
		}
		r.Pods = append(r.Pods, victim)
	}
	return r
}

// causeOf tells a plan from every other.
func causeOf(pod types.UID, plan state.Preemption) string {
	return fmt.Sprintf("pod/%s/%d", pod, plan.Deadline.Unix())
}

// mayEvict asks the queue for the turn of a plan. why is empty while it is its turn.
func (p *preemptions) mayEvict(ctx context.Context, c preemptor, plan state.Preemption) (ok bool, why string, err error) {
	ticket, err := p.Actions.Submit(ctx, p.actionOf(c, plan))
	if errors.Is(err, orchestration.ErrNotReady) {
		return false, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("asking for the preemption for pod %s: %w", c.view.Key(), err)
	}
	if ticket.Phase == rules.Running {
		return true, "", nil
	}
	if ticket.WaitingFor == "" {
		return false, "", nil // it has not been looked at yet
	}
	return false, fmt.Sprintf("action %s waits for %s: %s", ticket.Name, ticket.WaitingFor, ticket.Message), nil
}

// calledOff is why a plan must end because its action was ended: it was withdrawn, refused, or took too long.
func (p *preemptions) calledOff(c preemptor, plan state.Preemption) string {
	ticket, ok := p.Actions.Find(p.actionOf(c, plan))
	if !ok || ticket.Phase == rules.Waiting || ticket.Phase == rules.Running {
		return ""
	}
	out := fmt.Sprintf("Action %s is %s", ticket.Name, ticket.Phase)
	if ticket.Message != "" {
		out += ": " + ticket.Message
	}
	return out
}

// release lets the queue know that a plan has ended: what has not begun never does, and what runs is looked at.
func (p *preemptions) release(ctx context.Context, c preemptor, plan state.Preemption, outcome string) error {
	ticket, ok := p.Actions.Find(p.actionOf(c, plan))
	if !ok || ticket.Phase.Over() {
		return nil
	}
	p.Actions.Wake(ticket.Name)
	if ticket.Phase != rules.Waiting {
		return nil
	}
	return p.Actions.Withdraw(ctx, ticket.Name, outcome)
}

// NewPreempt makes the executor of preemptions. The evictions are those of the loop, which knows what is still needed, and
// acts while the action runs and the plan is on its pod; the executor says when that has ended. It asks the API
// server: a plan that a cache does not show yet has not ended.
func NewPreempt(api client.Reader) orchestration.Executor { return preempt{api} }

type preempt struct{ api client.Reader }

// Step implements orchestration.Executor.
func (e preempt) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	beneficiary := task.Object.Spec.Beneficiary
	pod, err := e.read(ctx, beneficiary.Namespace, beneficiary.Name, beneficiary.UID)
	if err != nil {
		return rules.Result{}, err
	}
	if plan := planOn(pod); plan != nil && causeOf(pod.UID, *plan) == task.Object.Spec.Cause {
		return rules.Result{Message: plan.Waits}, nil
	}
	var gone []string
	for _, victim := range task.Object.Spec.Pods {
		found, err := e.read(ctx, victim.Namespace, victim.Name, victim.UID)
		if err != nil {
			return rules.Result{}, err
		}
		if found == nil || found.DeletionTimestamp != nil {
			gone = append(gone, victim.Namespace+"/"+victim.Name)
		}
	}
	return outcomeOf(task, pod, gone), nil
}

// outcomeOf is what became of a plan that has ended.
func outcomeOf(task orchestration.Task, pod *corev1.Pod, gone []string) rules.Result {
	where := "the pod is gone"
	if pod != nil {
		where = "the pod has no node"
	}
	placed := pod != nil && pod.Spec.NodeName != ""
	if placed {
		where = "the pod is on node " + pod.Spec.NodeName
	}
	evicted := "nobody was evicted"
	if len(gone) > 0 {
		evicted = "evicted " + strings.Join(gone, ", ")
	}
	message := evicted + "; " + where
	switch {
	case len(gone) > 0 && placed:
		return rules.Result{Outcome: rules.Succeeded, Message: message}
	case len(gone) > 0:
		return rules.Result{Outcome: rules.Failed, Message: message} // evictions are for good
	case task.Undoing():
		return rules.Result{Outcome: rules.RolledBack, Message: message}
	}
	return rules.Result{Undo: true, Message: message}
}

// planOn is the plan that a pod has; nil for none.
func planOn(pod *corev1.Pod) *state.Preemption {
	if pod == nil || pod.Annotations[mcv1.AnnotationPreempting] == "" {
		return nil
	}
	plan, err := state.ParsePreemption(pod.Annotations[mcv1.AnnotationPreempting])
	if err != nil {
		return nil // the loop takes it away
	}
	return &plan
}

// read finds a pod that still exists under its UID; nil when it does not.
func (e preempt) read(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := e.api.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s/%s: %w", namespace, name, err)
	case pod.UID != uid:
		return nil, nil
	}
	return pod, nil
}
