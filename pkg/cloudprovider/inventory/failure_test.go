package inventory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

func TestAMachineThatNeverJoins(t *testing.T) {
	w := newWorld(t, machine("m1", func(m *inventory.Machine) { m.Spec.BootTimeout = &metav1.Duration{Duration: time.Minute} }), nodePool("edge"))
	w.settle("m1")
	for round, pause := range []time.Duration{1, 2, 4, 8} {
		claim := nodeClaim(fmt.Sprint("a", round))
		w.mustLaunch(claim)
		w.settle("m1")
		w.pass(61*time.Second, "m1")
		current := &karpv1.NodeClaim{}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), current); err != nil || current.DeletionTimestamp.IsZero() {
			t.Fatalf("round %d: the NodeClaim is not being deleted, %v", round, err)
		}
		w.end(claim, "m1")
		m := w.expectPhase("m1", "Quarantined")
		if w.board("m1").state != v1alpha1.PowerOff || m.Status.Failures != int32(round+1) || !strings.Contains(m.Status.LastFailure, "no Ready Node") {
			t.Errorf("round %d: power %s, status %+v", round, w.board("m1").state, m.Status)
		}
		if _, err := w.launch(nodeClaim(fmt.Sprint("b", round))); !karpcloud.IsInsufficientCapacityError(err) {
			t.Errorf("round %d: a quarantined machine was given away: %v", round, err)
		}
		if free := w.free(); free != 0 {
			t.Errorf("round %d: %d slots are offered", round, free)
		}
		// The quarantine counts from the failure, some of it is over.
		w.pass(pause*time.Minute, "m1")
		w.expectPhase("m1", "Free")
	}
	claim := nodeClaim("good")
	w.mustLaunch(claim)
	w.settle("m1")
	w.join("m1")
	w.settle("m1")
	if m := w.expectPhase("m1", "InUse"); m.Status.Failures != 0 || m.Status.QuarantinedUntil != nil {
		t.Errorf("failures are not forgiven: %+v", m.Status)
	}
}

// free counts the slots on offer.
func (w *world) free() int {
	w.t.Helper()
	types, err := w.provider.GetInstanceTypes(w.t.Context(), nodePool("edge"))
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, it := range types {
		for _, of := range it.Offerings {
			n += of.ReservationCapacity
		}
	}
	return n
}

func TestTheNextMachineIsTriedAfterAFailure(t *testing.T) {
	w := newWorld(t, machine("m1"), machine("m2"), nodePool("edge"))
	w.board("m1").err = fmt.Errorf("%w: 401", power.ErrCredentials)
	w.settle("m1", "m2")
	w.expectPhase("m1", "PowerFailed") // found out before anybody counted on it
	if created := w.mustLaunch(nodeClaim("a")); created.Status.ProviderID != "inventory://m2" {
		t.Errorf("ID %s", created.Status.ProviderID)
	}
}

func TestPowerThatFailsWhileStarting(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		after   time.Duration
		reason  string
		perHour int // attempts while it lasts, at most
	}{
		"refused credentials fail at once": {fmt.Errorf("%w: 401", power.ErrCredentials), 0, v1alpha1.ReasonCredentialsRefused, 1},
		"wrong settings fail at once":      {fmt.Errorf("%w: no Secret", power.ErrConfig), 0, v1alpha1.ReasonPowerMisconfigured, 1},
		"a line that is down is retried":   {fmt.Errorf("connection refused"), 11 * time.Minute, v1alpha1.ReasonPowerUnreachable, 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m1"), nodePool("edge"))
			w.settle("m1")
			claim := nodeClaim("a")
			w.mustLaunch(claim)
			w.board("m1").err = tc.err
			w.settle("m1")
			if tc.after > 0 {
				w.expectPhase("m1", "Starting")
				w.pass(tc.after, "m1")
			}
			m := w.expectPhase("m1", "Stopping")
			if m.Status.Failures != 1 {
				t.Errorf("status %+v", m.Status)
			}
			if c := w.condition("m1", v1alpha1.ConditionMachinePower); c.Reason != tc.reason {
				t.Errorf("condition %+v", c)
			}
			w.board("m1").err = nil
			w.pass(6*time.Minute, "m1")
			w.end(claim, "m1")
			w.expectPhase("m1", "Free") // the quarantine of a minute is over
		})
	}
}

// A kubelet joins when it starts: a machine that was left on has to start anew, once.
func TestAMachineThatIsOnWithoutANode(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.board("m1").state = v1alpha1.PowerOn
	w.settle("m1")
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	w.settle("m1")
	w.pass(5*time.Minute, "m1")
	if got := strings.Join(w.board("m1").calls, " "); got != "restart" {
		t.Errorf("calls %s", got)
	}
	w.pass(6*time.Minute, "m1")
	w.end(claim, "m1")
	w.expectPhase("m1", "Free")
	if m := w.machine("m1"); m.Status.Failures != 1 || !strings.Contains(m.Status.LastFailure, "power is On") {
		t.Errorf("status %+v", m.Status)
	}
}

func TestAMachineThatDoesNotGoOff(t *testing.T) {
	w, claim := running(t)
	w.board("m1").ignoring = true
	w.end(claim, "m1")
	calls := w.board("m1").calls
	if calls[len(calls)-1] != "cut" || slices.Index(calls, "cut") < slices.Index(calls, "off") {
		t.Errorf("calls %v: gracefully first, then by force", calls)
	}
}

// What cannot be switched off is not let go of, however long it takes, until someone vouches for it.
func TestAMachineThatCannotBeSwitchedOff(t *testing.T) {
	w, claim := running(t)
	w.board("m1").err = fmt.Errorf("connection refused")
	if err := w.client.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := w.provider.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.pass(15*time.Minute, "m1")
	if err := w.provider.Delete(t.Context(), claim); err != nil {
		t.Fatalf("after a quarter of an hour: %v", err)
	}
	w.expectPhase("m1", "Stopping")
	if w.recorder.Calls("PowerOffFailed") == 0 {
		t.Error("nobody is told")
	}
	m := w.machine("m1")
	m.Spec.Availability, m.Generation = v1alpha1.MachineOutOfService, 2
	if err := w.client.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.settle("m1")
	w.end(claim, "m1")
	w.expectPhase("m1", "OutOfService")
	if w.free() != 0 {
		t.Error("a machine out of service is offered")
	}
}

func TestAMachineThatLosesPower(t *testing.T) {
	w, claim := running(t)
	node := &corev1.Node{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "m1"}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute, "m1")
	if list, err := w.provider.List(t.Context()); err != nil || len(list) != 1 {
		t.Fatalf("a machine that is on and silent is there: %v, %v", list, err)
	}
	w.board("m1").state = v1alpha1.PowerOff
	w.pass(time.Minute, "m1")
	if list, err := w.provider.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("a machine that is off is listed: %v, %v", list, err)
	}
	if _, err := w.provider.Get(t.Context(), claim.Status.ProviderID); !isGone(err) {
		t.Errorf("error %v", err)
	}
	w.end(claim, "m1")
	w.expectPhase("m1", "Free")
}

func TestReboot(t *testing.T) {
	w, claim := running(t)
	for range 2 {
		if err := w.provider.Reboot(t.Context(), claim, "operation-1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(w.board("m1").calls, " "); got != "on restart" {
		t.Errorf("calls %s: an operation is done once", got)
	}
	w.board("m1").err = fmt.Errorf("busy")
	if err := w.provider.Reboot(t.Context(), claim, "operation-2"); err == nil || karpcloud.IsNodeRebootFailedError(err) {
		t.Errorf("error %v: trying again may help", err)
	}
	w.board("m1").err = fmt.Errorf("%w: 401", power.ErrCredentials)
	if err := w.provider.Reboot(t.Context(), claim, "operation-2"); !karpcloud.IsNodeRebootFailedError(err) {
		t.Errorf("error %v", err)
	}
	stranger := nodeClaim("b")
	stranger.Status.ProviderID = claim.Status.ProviderID
	if err := w.provider.Reboot(t.Context(), stranger, "operation-3"); !isGone(err) {
		t.Errorf("error %v", err)
	}
}

// While a driver restarts a machine, which takes seconds, its probe is written; and the process may die before and after.
func TestARebootIsAskedForOnce(t *testing.T) {
	restarts := func(w *world) int {
		return strings.Count(strings.Join(w.board("m1").calls, " "), "restart")
	}
	t.Run("beside a probe", func(t *testing.T) {
		w, claim := running(t)
		w.board("m1").after = func(call string) {
			if call != "restart" {
				return
			}
			m := w.expectPhase("m1", "InUse")
			m.Status.Power = v1alpha1.PowerUnknown
			if err := w.client.Status().Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := w.provider.Reboot(t.Context(), claim, "operation-1"); err != nil {
				t.Fatal(err)
			}
		}
		if n := restarts(w); n != 1 {
			t.Errorf("restarted %d times", n)
		}
	})
	for writes := range 2 {
		t.Run(fmt.Sprintf("death at write %d", writes), func(t *testing.T) {
			w, claim := running(t)
			w.writes = writes
			first := w.provider.Reboot(t.Context(), claim, "operation-1")
			w.restart()
			if err := w.provider.Reboot(t.Context(), claim, "operation-1"); err != nil {
				t.Fatal(err)
			}
			if n := restarts(w); n != 1 {
				t.Errorf("restarted %d times; the first attempt ended with %v", n, first)
			}
		})
	}
	t.Run("the driver does not answer", func(t *testing.T) {
		w, claim := running(t)
		w.board("m1").err = context.DeadlineExceeded
		if err := w.provider.Reboot(t.Context(), claim, "operation-1"); err == nil {
			t.Error("a reboot that nobody answered is no success")
		}
		w.board("m1").err = nil
		if err := w.provider.Reboot(t.Context(), claim, "operation-1"); err != nil || restarts(w) != 1 {
			t.Errorf("error %v, restarted %d times", err, restarts(w))
		}
	})
}
