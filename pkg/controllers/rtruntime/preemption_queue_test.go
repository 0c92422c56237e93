package rtruntime_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// calm nodes are not disrupted by others.
type calm struct{}

func (calm) Disrupted(string) string                                                 { return "" }
func (calm) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) { return nil, nil }

// actions is the orchestration queue of a controller, with its executor.
func (s *siege) actions(process client.Client) *orchestration.Queue {
	s.Helper()
	q, err := orchestration.New(orchestration.Dependencies{
		Clock: s.clock, Client: process, Reader: s.API, Recorder: silent{}, Nodes: calm{},
		Lease: types.NamespacedName{Namespace: s.namespace, Name: "queue"}, Identity: string(uuid.NewUUID()),
	})
	s.must(err)
	q.Handle(rules.Preempt, rtruntime.NewPreempt(s.API))
	return q
}

// silent drops the Events of the queue, which are tested where it is.
type silent struct{}

func (silent) Publish(...events.Event) {}

// turn lets the queue go on: it decides, and looks at every action.
func (b *besieger) turn() error {
	b.Helper()
	loops := b.queue.Loops()
	if _, err := loops[0].Reconcile(b.Context(), reconcile.Request{}); err != nil {
		return err
	}
	for _, o := range b.orders() {
		if _, err := loops[1].Reconcile(b.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: o.Name}}); err != nil {
			return err
		}
	}
	return nil
}

// orders are the actions for pods of the namespace.
func (s *siege) orders() []v1alpha1.RTAction {
	s.Helper()
	list := &v1alpha1.RTActionList{}
	s.must(s.API.List(s.Context(), list))
	var out []v1alpha1.RTAction
	for _, o := range list.Items {
		if o.Spec.Beneficiary.Namespace == s.namespace {
			out = append(out, o)
		}
	}
	return out
}

// order is the last action for a pod: its kind, phase and message.
func (s *siege) order(pod string) string {
	s.Helper()
	for _, o := range s.orders() {
		if o.Spec.Beneficiary.Name == pod {
			return fmt.Sprintf("%s %s: %s", o.Spec.Kind, o.Status.Phase, o.Status.Message)
		}
	}
	return ""
}

// A plan takes its turn in the queue: while another action has one of its victims, the controller evicts no pod, and the
// pod says so.
func TestAPlanWaitsForItsTurn(t *testing.T) {
	s := besieged(t, "turn")
	b := s.start(preempting)
	b.must(b.turn())
	victim := s.pod("low-1")
	other, err := b.queue.Submit(t.Context(), orchestration.Request{
		Kind: rules.Preempt, Reason: "Other", Cause: "other", Timeout: time.Minute,
		Pods:        []v1alpha1.ActionPod{{Namespace: victim.Namespace, Name: victim.Name, UID: victim.UID}},
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "McKube", Namespace: s.namespace, Name: "low-2", Criticality: "High"},
	})
	s.must(err)
	b.dispatch()
	for range 4 {
		s.must(s.hold(other.Name)) // its executor would end it
		b.step("high")
		b.look()
		b.dispatch()
	}
	if plan := s.plan("high"); len(s.evicted) > 0 || plan == nil || !strings.Contains(plan.Waits, "waits for InUse: Pod "+string(victim.UID)+" is used by "+other.Name) {
		t.Errorf("evicted %v, plan %+v, action %s", s.evicted, plan, s.order("high"))
	}
	s.drama("high")
	if got := s.running(); !slices.Equal(got, []string{"equal", "high"}) {
		t.Errorf("left: %v", got)
	}
}

// The queue says when it is a plan's turn: the loop does not ask for it again and again.
func TestTheQueueWakesThePlanWhoseTurnItIs(t *testing.T) {
	s := besieged(t, "woken")
	b := s.start(preempting)
	woken := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	b.must(rtruntime.OnAction(b.queue).Start(t.Context(), woken))
	b.must(b.turn())
	for range 2 { // it decides on a plan, then asks for its turn
		b.step("high")
		b.look()
	}
	if got := b.step("high"); got < rtruntime.Another {
		t.Errorf("it looks again after %s, want %s", got, rtruntime.Another)
	}
	drain(woken)
	b.dispatch()
	if got := drain(woken); !slices.Equal(got, []string{"woken/high"}) {
		t.Errorf("woken: %v", got)
	}
	if _, err := b.queue.Submit(t.Context(), orchestration.Request{
		Kind: rules.Rearrange, Reason: "Other", Cause: "other", Node: "n1", Timeout: time.Minute,
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: s.namespace, Name: "high", Criticality: "High"},
	}); err != nil || woken.Len() > 0 {
		t.Errorf("woken by what is no preemption: %d, %v", woken.Len(), err)
	}
}

// drain takes what a queue has.
func drain(q workqueue.TypedRateLimitingInterface[reconcile.Request]) (out []string) {
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
		out = append(out, r.String())
	}
	return out
}

// dispatch has the queue decide, and its executor do nothing.
func (b *besieger) dispatch() {
	b.Helper()
	_, err := b.queue.Loops()[0].Reconcile(b.Context(), reconcile.Request{})
	b.must(err)
}

// hold makes sure that an action runs.
func (s *siege) hold(name string) error {
	o := &v1alpha1.RTAction{}
	if err := s.API.Get(s.Context(), client.ObjectKey{Name: name}, o); err != nil {
		return err
	}
	if o.Status.Phase != "Running" {
		return fmt.Errorf("action %s is %s", name, o.Status.Phase)
	}
	return nil
}

// Deleting the action of a plan calls the plan off, before and after its turn has come.
func TestDeletingTheActionCallsThePlanOff(t *testing.T) {
	for _, phase := range []string{"Waiting", "Running"} {
		t.Run(phase, func(t *testing.T) {
			s := besieged(t, "off-"+strings.ToLower(phase))
			if phase == "Waiting" {
				s.budget("budget", 1, "low-1", "low-2") // needs 2
			}
			b := s.start(preempting)
			b.act("high")
			b.look()
			b.step("high")
			b.dispatch()
			orders := s.orders()
			if len(orders) != 1 || string(orders[0].Status.Phase) != phase || s.plan("high") == nil {
				t.Fatalf("plan %+v, actions %v", s.plan("high"), orders)
			}
			s.must(s.API.Delete(t.Context(), &orders[0]))
			for range 5 {
				b.act("high")
				b.look()
			}
			if s.plan("high") != nil || len(s.evicted) > 0 || len(s.orders()) > 0 {
				t.Errorf("plan %+v, evicted %v, action %s", s.plan("high"), s.evicted, s.order("high"))
			}
		})
	}
}

// A plan that has come to nothing takes its action with it, whatever that has come to.
func TestAPlanThatEndsInVainEndsItsAction(t *testing.T) {
	s := besieged(t, "vain")
	s.budget("budget", 0, "low-1")
	b := s.start(preempting)
	for range 4 {
		b.act("high")
		b.look()
	}
	if got := s.order("high"); !strings.HasPrefix(got, "Preempt Waiting: PodBudget vain/budget allows 0, 1 needed") {
		t.Errorf("action: %s", got)
	}
	s.clock.SetTime(s.plan("high").Deadline.Time)
	b.step("high")
	b.look()
	if got := s.order("high"); s.plan("high") != nil || !strings.HasPrefix(got, "Preempt Withdrawn: There was no room for the pod within 1m0s") {
		t.Errorf("plan %+v, action %s", s.plan("high"), got)
	}
}
