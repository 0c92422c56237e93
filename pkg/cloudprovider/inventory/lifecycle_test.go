package inventory_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
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

// A leader that does not know yet that it leads no more reads the machine free, and writes too late.
func TestTwoProcessesForOneMachine(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	former := w.provider
	w.restart()
	for _, claim := range []*karpv1.NodeClaim{nodeClaim("a"), nodeClaim("b")} {
		if err := w.client.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	w.meanwhile = func() {
		if _, err := w.provider.Create(t.Context(), nodeClaim("b")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := former.Create(t.Context(), nodeClaim("a")); !karpcloud.IsInsufficientCapacityError(err) {
		t.Errorf("error %v: both have it", err)
	}
	if claim := w.machine("m1").Status.Claim; claim == nil || claim.NodeClaim != "b" {
		t.Errorf("claim %+v", claim)
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
			before := w.reconcileClass().Status.MachinesHash
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
			// A change of the node class has Karpenter ask, and not only when it asks again by itself.
			if after := w.reconcileClass().Status.MachinesHash; before == "" || (after != before) != (tc.want != "") {
				t.Errorf("the hash of the node class's machines was %q and is %q, with drift %q", before, after, tc.want)
			}
		})
	}
}
