package disruption_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// migrates has an action take a pod of a node in hand.
func (w *world) migrates(node string) {
	w.Helper()
	n, _ := w.store.Snapshot().NodeView(node)
	a := &v1alpha1.RTAction{}
	a.Name, a.Spec.Kind, a.Status.Phase = "migrate-1", "Migrate", "Running"
	a.Spec.Pods = []v1alpha1.ActionPod{{Namespace: "default", Name: n.Servers[0].Pod, UID: n.Servers[0].PodUID}}
	w.actions[a.Name] = a
}

// What would have kept a node from being chosen keeps it from being deleted, too, when it begins only while the command is under way.
func TestANodeThatHasBecomeBusyIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		begins, ends func(w *world, node string)
	}{
		"ActionInFlight": {(*world).migrates, func(w *world, _ string) { w.actions["migrate-1"].Status.Phase = "Succeeded" }},
		"ContainerEscalated": {
			func(w *world, node string) { w.budget(node, 20_000) }, func(w *world, node string) { w.budget(node, 10_000) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := consolidating(t)
			for _, node := range []string{"a", "b"} {
				w.node(node, "edge", statetest.Cores(1)...)
				w.pod("pod-"+node, node, 20)
			}
			w.pass()
			closed := w.disrupted()
			if len(closed) != 1 {
				t.Fatalf("consolidation closes %v, want one of two half empty nodes", closed)
			}
			c.begins(w, closed[0])
			w.carry(closed[0])
			if w.closing(closed[0]) {
				t.Fatal("the node is being deleted")
			}
			if !w.said(name + ": ") {
				t.Errorf("it is not told: %q", w.messages())
			}
			w.expectHeld(map[string]float64{name: 1})
			c.ends(w, closed[0])
			w.clock.Step(2 * time.Second)
			w.carry(closed[0])
			if !w.closing(closed[0]) {
				t.Error("it is calm again, and the node is not deleted")
			}
			w.expectHeld(nil)
		})
	}
}

// So it is with a node that an action replaces, for which that action is in flight and budgets are raised of course.
func TestANodeWithAnotherActionIsNotDeletedForItsOwn(t *testing.T) {
	w, _, _ := ready(t, nil)
	w.migrates("old")
	w.budget("old", 20_000)
	w.carry("old")
	if w.closing("old") {
		t.Fatal("the node is being deleted, and an action has its pod in hand")
	}
	result := w.step("replace-1")
	w.expectMessage(result, "action migrate-1 has pod default/control in hand")
	if result.Undo {
		t.Error("it is given up, and the other action ends")
	}
	w.expectHeld(map[string]float64{"ActionInFlight": 1})
	w.actions["migrate-1"].Status.Phase = "Succeeded"
	w.clock.Step(2 * time.Second)
	w.carry("old")
	if !w.closing("old") {
		t.Error("the other action is over, and the node is not deleted")
	}
}
