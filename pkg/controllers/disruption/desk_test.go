package disruption

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

func replacing(name, node, uid string, phase v1alpha1.ActionPhase) *v1alpha1.RTAction {
	a := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec.Kind, a.Spec.Node = "ReplaceNode", node
	a.Status.Phase = phase
	if uid != "" {
		a.Status.Progress = map[string]string{progressNodeUID: uid}
	}
	return a
}

func TestOrdersAreOfNodesThatWereMeant(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.open([]*v1alpha1.RTAction{
		replacing("a", "node-a", "a-1", "Running"), replacing("b", "node-b", "b-1", "RollingBack"), replacing("c", "node-c", "", "Running"),
	})
	for _, tc := range []struct {
		node, uid string
		want      bool
	}{
		{"node-a", "a-1", true},
		{"node-a", "a-2", false}, // a later node of the name
		{"node-b", "b-1", false}, // being undone
		{"node-c", "", false},    // it is not on record which node is meant
		{"node-d", "d-1", false},
	} {
		if got := d.order(tc.node, types.UID(tc.uid)); (got != nil) != tc.want {
			t.Errorf("order for %s %s: %v, want %v", tc.node, tc.uid, got != nil, tc.want)
		}
	}
}

// Between the loop, which is about to start a command, and the executor, which undoes the action, exactly one goes first.
func TestNoCommandIsStartedForWhatWasCalledOff(t *testing.T) {
	t.Parallel()
	actions := []*v1alpha1.RTAction{replacing("a", "node-a", "a-1", "Running")}
	d := newDesk()
	d.open(actions)
	if !d.callOff("a") || d.hand("a") || d.order("node-a", "a-1") != nil {
		t.Error("a command may be started for an action that was called off before")
	}
	d = newDesk()
	d.open(actions)
	if !d.hand("a") || d.callOff("a") {
		t.Error("an action was undone while the loop starts its command")
	}
	d.settle(func(string) bool { return true }, "")
	if !d.callOff("a") {
		t.Error("the loop is done, and the action cannot be undone")
	}
	if _, started := d.read("a"); !started {
		t.Error("it is not known that its command was started")
	}
}

func TestPassesTellOfWhatTheyHaveNotTakenUp(t *testing.T) {
	t.Parallel()
	actions := []*v1alpha1.RTAction{replacing("a", "node-a", "a-1", "Running"), replacing("b", "node-b", "b-1", "Running")}
	d := newDesk()
	for range failuresMost {
		if n, _ := d.read("a"); n.impossible {
			t.Fatal("one failure was enough")
		}
		d.open(actions)
		d.hand("a")
		silent := d.settle(func(string) bool { return false }, "the NodePool is at its limit")
		if len(silent) != 1 || silent[0].Name != "b" {
			t.Errorf("nothing was found of %v, want b", silent)
		}
	}
	n, started := d.read("a")
	if !n.impossible || started || n.message != "the replacement could not be begun: the NodePool is at its limit" {
		t.Errorf("note of a is %+v", n)
	}
	d.write("b", note{message: "no budget"})
	d.open(actions)
	if silent := d.settle(nil, ""); len(silent) != 2 {
		t.Errorf("%d actions are new to a pass, want 2: what was found is of the pass before", len(silent))
	}
	d.open(nil)
	if n, _ := d.read("b"); n.message != "" {
		t.Error("notes of an action that is over were kept")
	}
}
