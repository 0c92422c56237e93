package inventory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// A NodeClaim whose finalizer someone has taken away is gone without Delete having been called.
func TestANodeClaimThatVanishes(t *testing.T) {
	w, claim := running(t)
	current := &karpv1.NodeClaim{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), current); err != nil {
		t.Fatal(err)
	}
	current.Finalizers = nil
	if err := w.client.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute, "m1")
	w.expectPhase("m1", "Free")
	if w.board("m1").state != v1alpha1.PowerOff || !w.gone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}) {
		t.Error("the machine runs on without a NodeClaim")
	}
}

// A NodeClaim of the same name that came later is another.
func TestANodeClaimOfTheSameNameIsAnother(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	claim := nodeClaim("a")
	claim.UID = "earlier"
	if _, err := w.provider.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Create(t.Context(), nodeClaim("a")); err != nil {
		t.Fatal(err)
	}
	w.settle("m1")
	w.expectPhase("m1", "Free")
	if slices.Contains(w.board("m1").calls, "on") {
		t.Errorf("calls %v for a NodeClaim that is gone", w.board("m1").calls)
	}
}

// Wherever the process dies, at a write or between the power and the write after it, the next one brings the same
// about: one Node for one NodeClaim, and in the end a free machine that is off.
func TestTheProcessMayDieAnywhere(t *testing.T) {
	for survived := range 8 {
		t.Run(fmt.Sprint("after ", survived, " writes"), func(t *testing.T) {
			w := newWorld(t, machine("m1"), nodePool("edge"))
			w.settle("m1")
			claim := nodeClaim("a")
			if err := w.client.Create(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			w.writes = survived
			w.untilDone(func() error {
				created, err := w.provider.Create(t.Context(), claim.DeepCopy())
				if err == nil {
					claim.Labels, claim.Status = created.Labels, created.Status
				}
				return err
			})
			w.untilDone(func() error { return w.steps("m1", "Starting", v1alpha1.PowerOn) })
			w.join("m1")
			w.untilDone(func() error { return w.steps("m1", "InUse", v1alpha1.PowerOn) })
			w.writes = survived
			if err := w.client.Delete(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			w.untilDone(func() error {
				if err := w.provider.Delete(t.Context(), claim); err != nil && !isGone(err) {
					return err
				}
				return w.steps("m1", "Stopped", v1alpha1.PowerOff)
			})
			w.forget(claim)
			w.untilDone(func() error { return w.steps("m1", "Free", v1alpha1.PowerOff) })
			for _, call := range w.board("m1").calls {
				if call == "restart" || call == "cut" {
					t.Errorf("calls %v", w.board("m1").calls)
				}
			}
		})
	}
}

// untilDone repeats what a process does, in a new process whenever one has died.
func (w *world) untilDone(do func() error) {
	w.t.Helper()
	var err error
	for range 20 {
		if err = do(); err == nil && !w.died {
			return
		}
		if w.died {
			w.restart()
		}
		w.clock.Step(5 * time.Second)
	}
	w.t.Fatalf("it does not come about: %v", err)
}

// steps takes steps until the machine is in a phase, with that power.
func (w *world) steps(name, phase string, state power.State) error {
	for range 6 {
		if err := w.reconcile(name); err != nil {
			return err
		}
		if w.died {
			return mortal.ErrDied
		}
	}
	if m := w.machine(name); m.Status.Phase != phase || w.board(name).state != state {
		return fmt.Errorf("phase %s, power %s", m.Status.Phase, w.board(name).state)
	}
	return nil
}

// A claim that a Create has recorded whose answer was lost, and that another machine now stands for, is given up.
func TestAClaimThatWasForgotten(t *testing.T) {
	w := newWorld(t, machine("m1"), machine("m2"), nodePool("edge"))
	w.settle("m1", "m2")
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	surplus := w.machine("m2")
	surplus.Status.Claim = w.machine("m1").Status.Claim.DeepCopy()
	surplus.Status.Claim.UID = types.UID("uid-a")
	if err := w.client.Status().Update(t.Context(), surplus); err != nil {
		t.Fatal(err)
	}
	w.settle("m1", "m2")
	w.expectPhase("m1", "Starting")
	if w.machine("m2").Status.Phase == "Starting" || slices.Contains(w.board("m2").calls, "on") {
		t.Errorf("machine m2 is %+v", w.machine("m2").Status)
	}
}
