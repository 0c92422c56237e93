package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

func isGone(err error) bool { return karpcloud.IsNodeClaimNotFoundError(err) }

// running is a world with one machine whose Node has joined for NodeClaim a.
func running(t *testing.T, changes ...func(*inventory.Machine)) (*world, *karpv1.NodeClaim) {
	t.Helper()
	w := newWorld(t, machine("m1", changes...), nodePool("edge"))
	w.settle("m1")
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	w.settle("m1")
	w.join("m1")
	w.settle("m1")
	w.expectPhase("m1", "InUse")
	return w, claim
}

func TestAMachineThroughTheLifeOfANodeClaim(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	w.expectPhase("m1", "Free")
	claim := nodeClaim("a")
	created := w.mustLaunch(claim)
	if created.Status.ProviderID != "inventory://m1" || len(w.board("m1").calls) != 0 {
		t.Fatalf("ID %s, calls %v: the ID comes at once, the power afterwards", created.Status.ProviderID, w.board("m1").calls)
	}
	if again := w.mustLaunch(claim); again.Status.ProviderID != created.Status.ProviderID {
		t.Error("Create was repeated and answered differently")
	}
	w.settle("m1")
	w.expectPhase("m1", "Starting")
	if w.board("m1").state != v1alpha1.PowerOn {
		t.Fatal("the machine is not on")
	}
	w.join("m1")
	w.settle("m1")
	w.expectPhase("m1", "InUse")
	node := &corev1.Node{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "m1"}, node); err != nil || node.Spec.ProviderID != "inventory://m1" {
		t.Errorf("provider ID of the Node is %q, %v", node.Spec.ProviderID, err)
	}
	if err := w.provider.Delete(t.Context(), claim); err != nil {
		t.Fatalf("the first Delete: %v", err)
	}
	if len(w.board("m1").calls) != 1 {
		t.Error("Delete itself has switched")
	}
	w.end(claim, "m1")
	w.expectPhase("m1", "Free")
	if got := strings.Join(w.board("m1").calls, " "); got != "on off" {
		t.Errorf("calls %s", got)
	}
}

func TestAFullInventoryRefusesByType(t *testing.T) {
	w, _ := running(t)
	_, err := w.launch(nodeClaim("b"))
	if !karpcloud.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), "of 1 machines 0 are free, 1 claimed") {
		t.Errorf("error %v", err)
	}
}

// Two processes, or two reconciles, that see the same machine free do not both get it.
func TestTwoNodeClaimsForOneMachine(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	for _, claim := range []*karpv1.NodeClaim{nodeClaim("a"), nodeClaim("b")} {
		if err := w.client.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	answers := make(chan error)
	for _, name := range []string{"a", "b"} {
		go func() {
			_, err := w.provider.Create(t.Context(), nodeClaim(name))
			answers <- err
		}()
	}
	first, second := <-answers, <-answers
	if (first == nil) == (second == nil) {
		t.Fatalf("answers %v and %v: one must have it, and one not", first, second)
	}
	if refused := firstOf(first, second); !karpcloud.IsInsufficientCapacityError(refused) {
		t.Errorf("error %v", refused)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

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
	w.pass(time.Hour, "m1")
	if err := w.provider.Delete(t.Context(), claim); err != nil {
		t.Fatalf("after an hour: %v", err)
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

func TestDeleteTouchesNoMachineOfAnother(t *testing.T) {
	w, claim := running(t)
	stranger := nodeClaim("b")
	stranger.Status.ProviderID = claim.Status.ProviderID
	if err := w.provider.Delete(t.Context(), stranger); !isGone(err) {
		t.Errorf("error %v", err)
	}
	w.settle("m1")
	w.expectPhase("m1", "InUse")
	for _, id := range []string{"", "inventory://", "inventory://none", "kwok://m1"} {
		stranger.Status.ProviderID = id
		if err := w.provider.Delete(t.Context(), stranger); !isGone(err) {
			t.Errorf("%q: error %v", id, err)
		}
		if _, err := w.provider.Get(t.Context(), id); !isGone(err) {
			t.Errorf("%q: error %v", id, err)
		}
	}
}

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

func TestAMachineThatIsDeleted(t *testing.T) {
	t.Run("free", func(t *testing.T) {
		w := newWorld(t, machine("m1"))
		w.settle("m1")
		m := w.machine("m1")
		if err := w.client.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		w.settle("m1")
		if !w.gone(m) {
			t.Error("it stays")
		}
	})
	t.Run("in use", func(t *testing.T) {
		w, claim := running(t)
		m := w.machine("m1")
		if err := w.client.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		w.settle("m1")
		if w.gone(m) || w.board("m1").state != v1alpha1.PowerOn {
			t.Fatal("it went before it was drained")
		}
		current := &karpv1.NodeClaim{}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), current); err != nil || current.DeletionTimestamp.IsZero() {
			t.Fatalf("its NodeClaim is not being deleted, %v", err)
		}
		w.end(claim, "m1")
		if !w.gone(m) || w.board("m1").state != v1alpha1.PowerOff {
			t.Error("it stays, or is on")
		}
	})
}

func TestAMachineThatIsWithheldKeepsItsNodeClaim(t *testing.T) {
	w, claim := running(t)
	m := w.machine("m1")
	m.Spec.Availability, m.Generation = v1alpha1.MachineWithheld, 2
	if err := w.client.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.settle("m1")
	w.expectPhase("m1", "InUse")
	w.end(claim, "m1")
	w.expectPhase("m1", "Withheld")
}

func TestAMachineThatIsEditedDrifts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*inventory.Machine)
		want   karpcloud.DriftReason
	}{
		"capacity": {func(m *inventory.Machine) {
			m.Spec.Capacity[corev1.ResourceCPU] = m.Spec.Capacity[corev1.ResourceMemory]
		}, inventory.MachineChanged},
		"cores":           {func(m *inventory.Machine) { m.Spec.Cores = &v1alpha1.CoreLayout{CoresPerNUMA: 4, Backend: "fifo"} }, inventory.MachineChanged},
		"zone":            {func(m *inventory.Machine) { m.Spec.Zone = "hall-2" }, inventory.MachineChanged},
		"a label of pods": {func(m *inventory.Machine) { m.Spec.Labels = map[string]string{rack: "a2"} }, inventory.MachineChanged},
		"another label":   {func(m *inventory.Machine) { m.Spec.Labels = map[string]string{"example.com/note": "x"} }, ""},
		"price":           {func(m *inventory.Machine) { m.Spec.PricePerHour = quantity("1") }, ""},
		"watts": {func(m *inventory.Machine) {
			m.Spec.Watts = &v1alpha1.MachineWatts{Idle: *quantity("1"), Max: *quantity("2")}
		}, ""},
		"power":              {func(m *inventory.Machine) { m.Spec.Power.Exec.Command = "other" }, ""},
		"the same, reworded": {func(m *inventory.Machine) { m.Spec.Capacity[corev1.ResourceMemory] = *quantity("8192Mi") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, claim := running(t)
			m := w.machine("m1")
			tc.change(m)
			m.Generation++
			if err := w.client.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			w.settle("m1")
			w.expectPhase("m1", "InUse")
			if reason, err := w.provider.IsDrifted(t.Context(), claim); err != nil || reason != tc.want {
				t.Errorf("drift %q, %v, want %q", reason, err, tc.want)
			}
		})
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
			return errDied
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
