package disruption_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// deletes has another client delete a NodeClaim. Where that client removes the finalizers too, the NodeClaim is gone at once.
func (w *world) deletes(name string, torn bool) {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	w.must(w.client.Delete(w.ctx, claim))
	if torn {
		w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
		claim.Finalizers = nil
		w.must(w.client.Update(w.ctx, claim))
	}
	w.sync()
}

// Another client deletes a NodeClaim while its replacement starts. The NodeClaim is closed without the gate: the action
// follows it, and says so.
func TestANodeThatAnotherClientClosesIsFollowedAndTold(t *testing.T) {
	w, pod := pressed(t)
	w.pass()
	w.step("replace-1")
	w.deletes("old", false)
	result := w.step("replace-1")
	w.expectMessage(result, "node old is being closed, as somebody else has deleted its NodeClaim")
	w.expectMessage(result, "there are still container app of pod default/control")
	w.evict(pod)
	result = w.step("replace-1")
	w.expectMessage(result, "somebody else has deleted its NodeClaim: nobody has asked whether its pods may go")
	if result.Outcome != rules.Succeeded {
		t.Errorf("it came to %+v, and the node has no pod", result)
	}
}

// A NodeClaim that this process deletes itself does not count as deleted by another client.
func TestANodeThatIsClosedInItsTurnIsNotAnotherClients(t *testing.T) {
	w, pod, _ := ready(t, nil)
	w.step("replace-1")
	w.carry("old")
	if got := w.step("replace-1").Message; got != "node old is being closed; there are still container app of pod default/control" {
		t.Errorf("it says %q", got)
	}
	w.evict(pod)
	w.expectMessage(w.step("replace-1"), "has no real-time container any longer")
}

// With the finalizer removed the NodeClaim is gone and the node serves on: Karpenter does not close it any longer. The action
// ends, and nothing marks the node. What was opened stays, as the provider may take the machine away.
func TestANodeWhoseNodeClaimIsRemovedByForceIsGivenUp(t *testing.T) {
	for name, undoing := range map[string]bool{"running": false, "being undone": true} {
		t.Run(name, func(t *testing.T) {
			w, _ := pressed(t)
			w.pass()
			w.step("replace-1")
			opened := w.opened()
			if !tainted(w.live("old")) || len(opened) != 1 {
				t.Fatalf("it is not under way: %v", opened)
			}
			w.deletes("old", true)
			if undoing {
				w.withdraw("replace-1")
			}
			result := w.step("replace-1")
			w.expectMessage(result, "somebody has taken the NodeClaim of node old away, which serves on and is no longer Karpenter's; what was opened in its place stays: "+opened[0])
			if result.Outcome != rules.Failed {
				t.Errorf("it came to %+v", result)
			}
			if tainted(w.live("old")) {
				t.Error("the node is left tainted")
			}
			if got := w.disrupted(); len(got) != 0 {
				t.Errorf("Karpenter still closes %v", got)
			}
			if got := w.opened(); !slices.Equal(got, opened) {
				t.Errorf("opened is %v, want %v", got, opened)
			}
		})
	}
}

// With the node gone, too, there is nothing left to do.
func TestANodeThatIsRemovedByForceIsTold(t *testing.T) {
	w, pod := pressed(t)
	w.pass()
	w.step("replace-1")
	w.deletes("old", true)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	w.must(w.client.Delete(w.ctx, node))
	w.evict(pod)
	result := w.step("replace-1")
	w.expectMessage(result, "Node old is closed, as somebody else has deleted its NodeClaim")
	if result.Outcome != rules.Succeeded {
		t.Errorf("it came to %+v", result)
	}
}

// What is left of an action that is undone is a node as any other. The controller that cleans up nodes of actions that came
// to nothing leaves it alone.
func TestWhatStaysBelongsToNoAction(t *testing.T) {
	w, opened := underWay(t)
	w.join(opened, statetest.Cores(2)...)
	node := w.live(opened)
	node.Annotations = map[string]string{v1alpha1.AnnotationAction: "replace-1"} // as Karpenter does when it registers
	w.must(w.client.Update(w.ctx, node))
	w.pod("early", opened, 0)
	w.withdraw("replace-1")
	w.expectMessage(w.expectRolledBack("replace-1"), "its replacement "+opened+" stays, for pods are there already")
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: opened}, claim))
	for _, o := range []client.Object{claim, w.live(opened)} {
		if got, left := o.GetAnnotations()[v1alpha1.AnnotationAction]; left {
			t.Errorf("%T is left with annotation %s=%s", o, v1alpha1.AnnotationAction, got)
		}
	}
}
