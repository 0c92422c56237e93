package migration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// budget keeps the pods of the town from being evicted.
func (w *town) budget() {
	w.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}},
		},
	}
	w.must(w.api.Create(w.Context(), b))
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	w.must(w.api.Status().Update(w.Context(), b))
}

// request asks for a pod to go to node b.
func (w *town) request(pod string) orchestration.Request {
	w.Helper()
	p := &corev1.Pod{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: pod}, p))
	return orchestration.Request{
		Kind: rules.Migrate, Reason: "RTPressure", Cause: "pressure/" + w.namespace, Node: w.name("a"), TargetNode: w.name("b"), Timeout: moving,
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: w.name("a"), Criticality: "High"},
		Pods:        []v1alpha1.ActionPod{{Namespace: w.namespace, Name: pod, UID: p.UID}},
	}
}

func (w *town) actions(ctx context.Context) []v1alpha1.RTAction {
	w.Helper()
	list := &v1alpha1.RTActionList{}
	w.must(w.api.List(ctx, list))
	return slices.DeleteFunc(list.Items, func(o v1alpha1.RTAction) bool { return o.Spec.Pods[0].Namespace != w.namespace })
}

// A migration that is not decided on says why, once that lasts.
func TestAPodThatTheControllerHasNotSeen(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.rollout(1)
	p := w.start()
	unseen := w.make()
	w.bind(unseen, "a", 1)
	w.asks(unseen.Name)
	says := func() string {
		w.must(p.loop())
		o := w.move()
		if at := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationAdmitted); at != nil {
			return fmt.Sprintf("%s %s: %s", o.Status.Phase, at.Reason, at.Message)
		}
		return string(o.Status.Phase)
	}
	if got := says(); got != "" {
		t.Errorf("at once it says %q", got)
	}
	w.clock.Step(time.Minute) // the API server has its own clock
	if got, want := says(), "Pending PodNotSeen: waits until the controller's cache shows the pod on its node"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	seeing := p
	p = w.start()
	p.store = state.New(state.Options{Clock: w.clock}) // which has not listed anything yet
	p.migrations = p.reconciler()
	if got, want := says(), "Pending NotReady: the controller's view of the cluster is not complete: waiting for the first lists"; !strings.HasPrefix(got, want) {
		t.Errorf("a process that has just begun says %q, want %q", got, want)
	}
	p = seeing
	p.look()
	if got := says(); !strings.HasPrefix(got, "Pending Admitted: ") {
		t.Errorf("once the pod is seen it says %q", got)
	}
}

// first does something before the action begins.
func first(do func(w *town)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		return func(turn int, p *process) {
			if turn == 0 {
				do(w)
				p.look()
			}
		}
	}
}

// Publish implements orchestration.Recorder.
func (w *town) Publish(list ...events.Event) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, e := range list {
		if o, ok := e.Object.(client.Object); ok && !strings.HasPrefix(e.Reason, "Action") {
			w.told, w.said = append(w.told, e.Reason+" "+o.GetName()), append(w.said, e.Message)
		}
	}
}

// heard is what was told.
func (w *town) heard() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.Clone(w.told)
}

// A PodMigration that a user labels as the record of an action, but that has another name, is no record: what it says of itself does not
// end the action.
func TestARecordOfAnothersAction(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	r, p := w.request("rt-1"), w.start()
	for range 3 {
		w.must(p.turn())
	}
	p, name := w.submit(p, r)
	w.must(p.turn()) // which makes the record
	w.asks("rt-1", func(o *v1alpha1.PodMigration) {
		o.Name, o.Spec.Abort = "forged", true
		o.Labels, o.Annotations = map[string]string{v1alpha1.LabelMigrationAction: name}, map[string]string{v1alpha1.AnnotationMigrationCause: r.Cause}
	})
	ends := map[string]v1alpha1.MigrationPhase{}
	for _, o := range w.migrate(nil) {
		ends[o.Name] = o.Status.Phase
	}
	if ends[name] != v1alpha1.MigrationSucceeded || ends["forged"] != v1alpha1.MigrationFailed || w.places() != "b" {
		t.Errorf("%v; %s", ends, w.everyone())
	}
}

// A stopped source is not ready where it has a readiness probe. The only pod of a budget of maxUnavailable: 1 may be evicted then only
// where the budget says so.
func TestABudgetOfASourceThatIsNotReady(t *testing.T) {
	t.Parallel()
	for policy, c := range map[policyv1.UnhealthyPodEvictionPolicyType]struct{ phase, says, places string }{
		policyv1.IfHealthyBudget: {"RolledBack", "may not be evicted yet", "a"}, policyv1.AlwaysAllow: {"Succeeded", "in place of", "b"},
	} {
		budgeted := func(w *town) {
			w.Cleanup(w.house("StatefulSet").expectNothingLeft)
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "budget"}, Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}}, UnhealthyPodEvictionPolicy: ptr.To(policy),
			}}
			w.must(w.api.Create(w.Context(), b))
			b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, CurrentHealthy: 1, ExpectedPods: 1, DisruptionsAllowed: 1}
			w.must(w.api.Status().Update(w.Context(), b))
		}
		unready := func(w *town) {
			w.sicken(0)
			b := &policyv1.PodDisruptionBudget{}
			w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "budget"}, b))
			b.Status.CurrentHealthy, b.Status.DisruptionsAllowed = 0, 0 // as the disruption controller has it
			w.must(w.api.Status().Update(w.Context(), b))
		}
		journey{name: string(policy), town: budgeted, ask: ask("Checkpoint"), during: at("Transferring", unready), phase: c.phase, says: c.says, places: c.places}.test(t)
	}
}
