package disruption_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// byName has a McKube govern a pod by its name, as it did not before.
func (w *world) byName(pod *corev1.Pod) {
	w.Helper()
	w.must(w.store.Update(statetest.McKube("default", pod.Name, pod.Name, "High", 50, 50)))
}

const wouldLose = "pod default/control must stay: McKube control governs the pod by its name"

// What its owner makes in the place of a pod has another name: no McKube that goes by the name would govern it.
func TestANodeWhosePodWouldLoseItsBudgetIsNotReplaced(t *testing.T) {
	w, pod := pressed(t)
	w.byName(pod)
	w.pass()
	result := w.step("replace-1")
	w.expectMessage(result, wouldLose)
	if !result.Undo || len(w.opened()) > 0 {
		t.Errorf("%+v, opened %v", result, w.opened())
	}
	w.expectRolledBack("replace-1")
	w.expectUntouched("old")
}

// The same where it has become so while the replacement started.
func TestANodeWhosePodWouldLoseItsBudgetMeanwhileIsNotClosed(t *testing.T) {
	w, pod, _ := ready(t, nil)
	w.byName(pod)
	w.carry("old")
	if w.closing("old") {
		t.Fatal("the node is being closed")
	}
	result := w.step("replace-1")
	w.expectMessage(result, wouldLose)
	if !result.Undo {
		t.Errorf("it is waited for: %+v", result)
	}
	w.expectRolledBack("replace-1")
}

// A StatefulSet's pod has its name wherever it is made again.
func TestANodeWhosePodKeepsItsNameIsReplaced(t *testing.T) {
	w, pod := pressed(t)
	pod.OwnerReferences[0].Kind = "StatefulSet"
	w.must(w.client.Update(w.ctx, pod))
	w.byName(pod)
	w.sync()
	w.pass()
	if got := w.disrupted(); len(got) != 1 || len(w.opened()) != 1 {
		t.Errorf("Karpenter closes %v for %v", got, w.opened())
	}
}
