package disruption_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

var (
	byBudget = apierrors.NewTooManyRequests("the disruption budget control needs 1 healthy pods and has 1", 0)
	byPolicy = apierrors.NewForbidden(corev1.Resource("pods"), "control", errors.New("the shift is not over"))
)

// ready is a world whose node "old" could be closed now, for its replacement is ready; its pod, and what evictions come to from now on.
func ready(t *testing.T, refused error) (*world, *corev1.Pod, *error) {
	t.Helper()
	answer := error(nil)
	w := begin(t, statetest.Cores(2)...)
	w.client = interceptor.NewClient(w.client, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, body client.Object, options ...client.SubResourceCreateOption) error {
			if name == "eviction" && answer != nil {
				return answer
			}
			return c.SubResource(name).Create(ctx, o, body, options...)
		},
	})
	w.restart()
	w.node("old", "edge", statetest.Cores(2)...)
	pod := w.pod("control", "old", 50)
	w.submit("replace-1", "old")
	w.step("replace-1")
	w.pass()
	w.join(w.opened()[0], statetest.Cores(2)...)
	answer = refused
	return w, pod, &answer
}

// closing tells whether a node is being closed.
func (w *world) closing(name string) bool {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	return claim.DeletionTimestamp != nil
}

// A PodDisruptionBudget that closes only while the replacement starts is waited for before the node is closed.
func TestABudgetThatClosesMeanwhileIsWaitedFor(t *testing.T) {
	w, pod, answer := ready(t, byBudget)
	w.carry("old")
	if w.closing("old") {
		t.Fatal("the node is being closed, and its pod may not go")
	}
	result := w.step("replace-1")
	w.expectMessage(result, "pod default/control may not be evicted: the disruption budget control needs 1 healthy pods")
	if result.Undo {
		t.Error("it is given up, and budgets open again")
	}
	*answer = nil
	w.clock.Step(2 * time.Second)
	w.carry("old")
	if !w.closing("old") {
		t.Fatal("the budget is open, and the node is not closed")
	}
	w.expectMessage(w.step("replace-1"), "is being closed; there are still container app of pod default/control")
	w.evict(pod)
	if result := w.step("replace-1"); result.Outcome != rules.Succeeded {
		t.Errorf("it came to %+v", result)
	}
}

// A pod that its user has kept from disruption only then would never be evicted, and its node would stay half closed.
func TestAPodThatIsKeptFromDisruptionMeanwhileIsWaitedFor(t *testing.T) {
	for _, by := range []string{"ReplicaSet", "DaemonSet"} {
		t.Run(by, func(t *testing.T) {
			w, pod, _ := ready(t, nil)
			w.must(w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: by, Name: "owner", UID: "owner"}}
			pod.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			w.must(w.client.Update(w.ctx, pod))
			w.carry("old")
			if w.closing("old") {
				t.Fatal("the node is being closed, and its pod will not be evicted")
			}
			result := w.step("replace-1")
			w.expectMessage(result, "pod default/control has annotation karpenter.sh/do-not-disrupt")
			if result.Undo {
				t.Error("it is given up, and the annotation may go")
			}
			delete(pod.Annotations, karpv1.DoNotDisruptAnnotationKey)
			w.must(w.client.Update(w.ctx, pod))
			w.clock.Step(2 * time.Second)
			w.carry("old")
			if !w.closing("old") {
				t.Error("the annotation is gone, and the node is not closed")
			}
		})
	}
}

// When it stays closed Karpenter gives the command up: the action says for whose sake, and all is as before.
func TestABudgetThatNeverOpensAgainIsTold(t *testing.T) {
	w, _, _ := ready(t, byBudget)
	w.carry("old")
	w.step("replace-1")
	w.clock.Step(11 * time.Minute)
	w.carry("old")
	result := w.step("replace-1")
	w.expectMessage(result, "Karpenter has given the command up: pod default/control may not be evicted: the disruption budget")
	if !result.Undo {
		t.Errorf("it goes on: %+v", result)
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
	if left := w.opened(); len(left) != 0 {
		t.Errorf("%v are left of it", left)
	}
}

// A policy that says no only then is not waited for.
func TestAPolicyThatSaysNoMeanwhileIsHeard(t *testing.T) {
	w, _, _ := ready(t, byPolicy)
	w.carry("old")
	result := w.step("replace-1")
	w.expectMessage(result, "the shift is not over")
	if !result.Undo {
		t.Errorf("it waits: %+v", result)
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
	if left := w.opened(); len(left) != 0 {
		t.Errorf("%v are left of it", left)
	}
}

// The room that the command counted on may be gone when the replacement is ready.
func TestANodeIsNotClosedWhileItsContainersHaveNoCoreElsewhere(t *testing.T) {
	w, _, _ := ready(t, nil)
	cordoned := func(is bool) {
		node := w.live(w.opened()[0])
		node.Spec.Unschedulable = is
		w.must(w.client.Update(w.ctx, node))
		w.sync()
	}
	cordoned(true)
	w.carry("old")
	if w.closing("old") {
		t.Fatal("the node is being closed, and nothing else has room")
	}
	w.expectMessage(w.step("replace-1"), "no other node has a core that admits container app of pod default/control")
	cordoned(false)
	w.clock.Step(2 * time.Second)
	w.carry("old")
	if !w.closing("old") {
		t.Error("there is room, and the node is not closed")
	}
}

// Karpenter's queue may be working on a command at the very moment at which its action is withdrawn.
func TestNoNodeIsClosedForAnActionThatIsBeingUndone(t *testing.T) {
	w, _, _ := ready(t, nil)
	w.withdraw("replace-1")
	w.carry("old")
	w.expectMessage(w.step("replace-1"), "taken back")
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
}

// Karpenter's queue tries to delete a node several times in a row: nor is one deleted when the action is over by then.
func TestNoNodeIsClosedForACommandThatWasTakenBack(t *testing.T) {
	w, _, _ := ready(t, nil)
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: "old"}, claim))
	w.withdraw("replace-1")
	w.expectRolledBack("replace-1")
	if err := w.dependencies.Gate.Delete(w.ctx, claim); err == nil {
		t.Error("it is deleted")
	}
	w.expectUntouched("old")
}

// The controller does not bring back a node that is being closed. Where a pod may not go and the action is withdrawn, the
// action ends and says why.
func TestWhatKeepsANodeThatIsBeingClosedIsTold(t *testing.T) {
	w, _, answer := ready(t, nil)
	w.carry("old")
	*answer = byPolicy
	if result := w.step("replace-1"); result.Outcome != "" {
		t.Fatalf("it came to %+v, and may still go on", result)
	}
	w.withdraw("replace-1")
	w.actions["replace-1"].Status.Message = "The pressure has changed"
	result := w.step("replace-1")
	w.expectMessage(result, "The pressure has changed; but node old is being closed; there are still container app of pod default/control; pod default/control may not be evicted")
	w.expectMessage(result, "the shift is not over")
	if result.Outcome != rules.Failed {
		t.Errorf("it came to %+v, want Failed", result)
	}
}

// A budget, or an API server that is busy, refuses an eviction only for now. Such a refusal does not end an action that is
// withdrawn: the controller asks again, and the action succeeds when the pod has gone.
func TestAMomentaryRefusalDoesNotEndAnAction(t *testing.T) {
	for name, refused := range map[string]error{"a budget": byBudget, "a busy API server": apierrors.NewTooManyRequestsError("too many requests, please try again later")} {
		t.Run(name, func(t *testing.T) {
			w, pod, answer := ready(t, nil)
			w.carry("old")
			w.withdraw("replace-1")
			w.entered("replace-1")
			*answer = refused
			if result := w.step("replace-1"); result.Outcome != "" {
				t.Fatalf("it came to %+v at once", result)
			}
			*answer = apierrors.NewServiceUnavailable("restarting")
			if err := w.try("replace-1"); err == nil {
				t.Error("an API server that does not answer is not told")
			}
			*answer = nil
			w.evict(pod)
			if result := w.step("replace-1"); result.Outcome != rules.Succeeded {
				t.Errorf("it came to %+v, and the pod has gone", result)
			}
		})
	}
}

// When the time is over the action has failed, and says for whose sake.
func TestARefusalThatLastsIsTold(t *testing.T) {
	w, _, answer := ready(t, nil)
	w.carry("old")
	w.withdraw("replace-1")
	w.entered("replace-1")
	*answer = byBudget
	w.clock.Step(10*time.Minute - 5*time.Second)
	result := w.step("replace-1")
	w.expectMessage(result, "pod default/control may not be evicted: the disruption budget")
	if result.Outcome != rules.Failed {
		t.Errorf("it came to %+v, and its time is over", result)
	}
}

// What kept the node from being closed is forgotten when it no longer does: what comes after is not told in its words, and nothing of it is left.
func TestWhatKeptANodeIsForgotten(t *testing.T) {
	w, pod, answer := ready(t, byBudget)
	w.carry("old")
	w.step("replace-1")
	if w.actions["replace-1"].Status.Progress["kept"] == "" {
		t.Fatal("it is not kept in mind why the node is not closed")
	}
	*answer = nil
	w.clock.Step(2 * time.Second)
	w.carry("old")
	w.step("replace-1")
	w.evict(pod)
	w.step("replace-1")
	if got := w.actions["replace-1"].Status; got.Phase != "Succeeded" || got.Progress["kept"] != "" {
		t.Errorf("it is %s, and has %v", got.Phase, got.Progress)
	}
}

// Nor does the next leader tell of it: it begins the command anew.
func TestWhatKeptANodeIsForgottenByTheNextLeader(t *testing.T) {
	w, _, answer := ready(t, byBudget)
	w.carry("old")
	w.step("replace-1")
	*answer = nil
	w.restart()
	w.reveal()
	w.pass() // begun again, by a process that nothing has kept yet
	if w.step("replace-1"); len(w.disrupted()) != 1 || w.actions["replace-1"].Status.Progress["kept"] != "" {
		t.Errorf("Karpenter closes %v, and the action has %v", w.disrupted(), w.actions["replace-1"].Status.Progress)
	}
}
