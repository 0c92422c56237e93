package ladder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// eviction is a preemption of two Low pods for a High one, on a node under pressure. A third, "third", is in the way as well.
type eviction struct {
	*stage
	process  *process
	executor orchestration.Executor
	object   *v1alpha1.RTAction
}

func newEviction(t *testing.T) *eviction {
	s := simple(t)
	s.run("little", "a", "Low", 10, 0)
	s.run("third", "a", "Low", 60, 0)
	s.live()
	e := &eviction{stage: s, process: s.spawn()}
	e.executor = ladder.NewPreempt(s.api, s.api, e.process.store)
	begun := metav1.NewTime(s.clock.Now().Truncate(time.Second))
	e.condition("OverrunsAtHighBudget", begun)
	e.object = &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: "preempt"}}
	e.object.Spec = v1alpha1.RTActionSpec{
		Kind: "Preempt", Reason: "RTPressure", Node: s.nodes[0], Cause: v1alpha1.PressureCause(s.rtNode(s.nodes[0]).UID, begun.Time),
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: s.namespace, Name: "high", UID: e.pod("high").UID, Criticality: "High"},
	}
	for _, name := range []string{"low", "little"} {
		e.object.Spec.Pods = append(e.object.Spec.Pods, v1alpha1.ActionPod{Namespace: s.namespace, Name: name, UID: e.pod(name).UID})
	}
	return e
}

func (e *eviction) condition(reason string, begun metav1.Time) {
	e.Helper()
	r := e.rtNode(e.nodes[0])
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionRTPressure, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: begun})
	e.must(e.api.Status().Update(e.Context(), r))
}

// pod of a name; nil when it is gone.
func (e *eviction) pod(name string) *corev1.Pod {
	e.Helper()
	p := &corev1.Pod{}
	if err := e.api.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, p); err != nil {
		e.must(client.IgnoreNotFound(err))
		return nil
	}
	return p
}

// step has the executor make one step on the current state.
func (e *eviction) step(phase rules.Phase) rules.Result {
	e.Helper()
	e.process.look()
	result, err := e.executor.Step(context.Background(), orchestration.Task{Action: rules.Action{Kind: rules.Preempt, Phase: phase}, Object: e.object})
	e.must(err)
	return result
}

func (e *eviction) here(names ...string) {
	e.Helper()
	var got []string
	for _, name := range []string{"low", "little"} {
		if e.pod(name) != nil {
			got = append(got, name)
		}
	}
	expectLines(e, "still there", got, names...)
}

func (e *eviction) is(r rules.Result, outcome rules.Phase, undo bool, message string) {
	e.Helper()
	if r.Outcome != outcome || r.Undo != undo || r.Message != message {
		e.Errorf("got  %q undo %t %q\nwant %q undo %t %q", r.Outcome, r.Undo, r.Message, outcome, undo, message)
	}
}

func TestPodsAreEvictedOneAtATime(t *testing.T) {
	e := newEviction(t)
	ns := e.namespace
	e.is(e.step(rules.Running), "", false, "evicted pod "+ns+"/low")
	e.here("little")
	e.is(e.step(rules.Running), "", false, "evicted pod "+ns+"/little")
	e.here()
	e.is(e.step(rules.Running), rules.Succeeded, false, "evicted "+ns+"/low, "+ns+"/little")
}

// The first pod goes only when all may. The executor waits for a budget that refuses.
func TestNoPodIsEvictedWhileABudgetBlocksOne(t *testing.T) {
	e := newEviction(t)
	little := e.pod("little")
	little.Labels["app"] = "little"
	e.must(e.api.Update(t.Context(), little))
	e.must(e.api.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "none"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "little"}}},
	}))
	if r := e.step(rules.Running); r.Outcome != "" || r.Undo || r.Message == "" {
		t.Errorf("got %+v", r)
	}
	e.here("low", "little")
	e.is(e.step(rules.RollingBack), rules.RolledBack, false, "nobody was evicted")
}

// No pod goes for a pressure that has eased or is another, or for a pod that is no longer more critical. The result names the
// pods that went before.
func TestNoPodIsEvictedInVain(t *testing.T) {
	e := newEviction(t)
	begun := metav1.NewTime(e.clock.Now().Truncate(time.Second))
	e.condition("Eased", begun)
	e.is(e.step(rules.Running), "", true, "the pressure has gone")
	e.condition("OverrunsAtHighBudget", begun)
	e.object.Spec.Cause += "0"
	e.is(e.step(rules.Running), "", true, "the pressure has gone")
	e.object.Spec.Cause = e.object.Spec.Cause[:len(e.object.Spec.Cause)-1]
	m := &mcv1.McKube{}
	e.must(e.api.Get(t.Context(), client.ObjectKey{Namespace: e.namespace, Name: "little"}, m))
	m.Spec.Criticality = "High"
	e.must(e.api.Update(t.Context(), m))
	e.is(e.step(rules.Running), "", true, "pod "+e.namespace+"/little is no longer less critical")
	e.here("low", "little")
	e.must(e.api.Delete(t.Context(), e.pod("low")))
	e.is(e.step(rules.Running), rules.Failed, false, "evicted "+e.namespace+"/low; not "+e.namespace+"/little; pod "+e.namespace+"/little is no longer less critical")
	e.condition("Eased", begun)
	e.is(e.step(rules.Running), rules.Succeeded, false, "evicted "+e.namespace+"/low; not "+e.namespace+"/little; the pressure has gone")
	e.is(e.step(rules.RollingBack), rules.Failed, false, "evicted "+e.namespace+"/low; not "+e.namespace+"/little")
}

// A policy that refuses ends the attempt: the planner tries another level meanwhile.
func TestAPolicyThatForbidsAnEviction(t *testing.T) {
	e := newEviction(t)
	says := errors.New("not on weekdays")
	forbidding := interceptor.NewClient(e.api, interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods/eviction"), "low", says)
		},
	})
	e.executor = ladder.NewPreempt(forbidding, e.api, e.process.store)
	r := e.step(rules.Running)
	if !r.Undo || !strings.Contains(r.Message, says.Error()) {
		t.Errorf("got %+v", r)
	}
	e.here("low", "little")
}

// The gate turns evictions into migrations, except those that name their action.
func TestEvictionsSayForWhichActionTheyAre(t *testing.T) {
	e := newEviction(t)
	said := ""
	watched := interceptor.NewClient(e.api, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, api client.Client, sub string, o, body client.Object, options ...client.SubResourceCreateOption) error {
			said = body.GetAnnotations()[v1alpha1.AnnotationAction]
			return api.SubResource(sub).Create(ctx, o, body, options...)
		},
	})
	e.executor = ladder.NewPreempt(watched, e.api, e.process.store)
	if e.step(rules.Running); said == "" || said != e.object.Name {
		t.Errorf("it is of %q, want %q", said, e.object.Name)
	}
}

// Another pod that has taken the name is not in the action.
func TestAnotherPodOfTheNameStays(t *testing.T) {
	e := newEviction(t)
	e.object.Spec.Pods[0].UID, e.object.Spec.Pods[1].UID = "earlier", "earlier-too"
	e.is(e.step(rules.Running), rules.Succeeded, false, "evicted "+e.namespace+"/low, "+e.namespace+"/little")
	e.here("low", "little")
}

// No pod goes, or no further one, for a pod that no longer exists.
func TestNoPodIsEvictedForPodThatIsGone(t *testing.T) {
	for name, before := range map[string]int{"before the first": 0, "before the second": 1} {
		t.Run(name, func(t *testing.T) {
			e := newEviction(t)
			for range before {
				e.step(rules.Running)
			}
			e.must(e.api.Delete(t.Context(), e.pod("high"), client.GracePeriodSeconds(0)))
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "high"}}
			e.must(client.IgnoreNotFound(e.api.Delete(t.Context(), claim)))
			if r := e.step(rules.Running); e.pod("little") == nil || before == 0 && e.pod("low") == nil {
				t.Errorf("evicted for a pod that is gone: %+v", r)
			}
		})
	}
}

// Of several pods none goes, or no further one, once there is room without it, because another pod has gone by itself.
func TestNoPodIsEvictedForExistingRoom(t *testing.T) {
	for name, before := range map[string]int{"before the first": 0, "before the second": 1} {
		t.Run(name, func(t *testing.T) {
			e := newEviction(t)
			for range before {
				e.step(rules.Running)
			}
			e.must(e.api.Delete(t.Context(), e.pod("third"), client.GracePeriodSeconds(0)))
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "third"}}
			e.must(client.IgnoreNotFound(e.api.Delete(t.Context(), claim)))
			e.live()
			if r := e.step(rules.Running); before == 0 {
				e.is(r, "", true, "there is room without")
				e.here("low", "little")
			} else {
				e.is(r, rules.Succeeded, false, "evicted "+e.namespace+"/low; not "+e.namespace+"/little; there is room without")
				e.here("little")
			}
		})
	}
}

// No pod is evicted, or no further one, on a node that is being deleted: all pods leave it, and so does the beneficiary.
func TestNoPodIsEvictedFromDeletedNode(t *testing.T) {
	for name, before := range map[string]int{"before the first": 0, "before the second": 1} {
		t.Run(name, func(t *testing.T) {
			e := newEviction(t)
			for range before {
				e.step(rules.Running)
			}
			defer e.closes("a")()
			if r := e.step(rules.Running); before == 0 {
				e.is(r, "", true, "the node is being closed")
				e.here("low", "little")
			} else {
				e.is(r, rules.Succeeded, false, "evicted "+e.namespace+"/low; not "+e.namespace+"/little; the node is being closed")
				e.here("little")
			}
		})
	}
}

// The report of a silent agent does not count: no pod goes for it, until the agent reports again.
func TestNoPodIsEvictedWhileAgentIsSilent(t *testing.T) {
	e := newEviction(t)
	e.silent = true
	e.live()
	e.is(e.step(rules.Running), "", false, "waits for the agent of node "+e.nodes[0]+" to be heard again")
	e.here("low", "little")
	e.silent = false
	e.live()
	e.is(e.step(rules.Running), "", false, "evicted pod "+e.namespace+"/low")
}
