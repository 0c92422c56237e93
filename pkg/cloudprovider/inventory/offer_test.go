package inventory_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func priced(price string) func(*inventory.Machine) {
	return func(m *inventory.Machine) { m.Spec.PricePerHour = quantity(price) }
}

func inRack(value string) func(*inventory.Machine) {
	return func(m *inventory.Machine) {
		m.Spec.Labels = map[string]string{rack: value, "example.com/note": "of " + value}
	}
}

func (w *world) types(pool *karpv1.NodePool) []*karpcloud.InstanceType {
	w.t.Helper()
	types, err := w.provider.GetInstanceTypes(w.t.Context(), pool)
	if err != nil {
		w.t.Fatal(err)
	}
	return types
}

func TestLikeMachinesAreOneInstanceType(t *testing.T) {
	all := []string{"m1", "m2", "m3", "m4", "m5"}
	w := newWorld(t, machine("m1", priced("0.05")), machine("m2", priced("0.05")), machine("m3", priced("0.07")),
		machine("m4", inRack("a1")), machine("m5", func(m *inventory.Machine) { m.Spec.HardwareClass = "gateway" }), nodePool("edge"))
	w.settle(all...)
	types := w.types(nodePool("edge"))
	if len(types) != 3 {
		t.Fatalf("%d types", len(types))
	}
	edge := types[0]
	if len(edge.Offerings) != 2 || edge.Offerings[0].Price != 0.05 || edge.Offerings[0].ReservationCapacity != 2 || edge.Offerings[1].ReservationCapacity != 1 {
		t.Errorf("offerings %+v", edge.Offerings)
	}
	for _, of := range edge.Offerings {
		if of.CapacityType() != karpv1.CapacityTypeReserved || of.ReservationID() == "" || of.Zone() != "hall-1" || !of.Available {
			t.Errorf("offering %+v", of)
		}
	}
	if !strings.HasPrefix(edge.Name, "edge-") || edge.Name != w.machine("m1").Status.InstanceType || len(edge.Name) > 63 {
		t.Errorf("name %s, the machine says %s", edge.Name, w.machine("m1").Status.InstanceType)
	}
	if got := types[1].Requirements.Get(rack); got.Operator() != corev1.NodeSelectorOpIn || got.Any() != "a1" {
		t.Errorf("rack of m4 is %s", got)
	}
	for _, key := range []string{rack, v1alpha1.LabelGPUModel, v1alpha1.LabelWattsMax} {
		if r, ok := edge.Requirements[key]; !ok || r.Operator() != corev1.NodeSelectorOpDoesNotExist {
			t.Errorf("%s of m1 is %v: undefined, Karpenter takes it for a match", key, r)
		}
	}
	if again := w.types(nodePool("edge")); !slices.Equal(again, types) {
		t.Error("nothing has changed, and the pointers have")
	}
	w.mustLaunch(nodeClaim("a"))
	changed := w.types(nodePool("edge"))
	if slices.Equal(changed, types) || changed[0].Offerings[0].ReservationCapacity+changed[0].Offerings[1].ReservationCapacity != 3 && len(changed) == 3 && w.free() != 4 {
		t.Errorf("a machine was claimed, and %d are free", w.free())
	}
}

// Karpenter frees a slot by the reservation in the NodeClaim's labels: an edited machine has to be found under it.
func TestAMachineThatWasEditedKeepsItsReservation(t *testing.T) {
	w, claim := running(t)
	held := claim.Labels[v1alpha1.LabelReservationID]
	edit := func(name string) {
		t.Helper()
		m := w.machine(name)
		inRack("a7")(m)
		m.Generation++
		if err := w.client.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	edit("m1")
	types := w.types(nodePool("edge"))
	if len(types) != 1 || types[0].Name == claim.Labels[corev1.LabelInstanceTypeStable] || types[0].Requirements.Get(rack).Any() != "a7" {
		t.Fatalf("types %+v", types)
	}
	if i := slices.IndexFunc(types[0].Offerings, func(of *karpcloud.Offering) bool { return of.ReservationID() == held }); i < 0 ||
		!types[0].Offerings[i].Available || types[0].Offerings[i].ReservationCapacity != 0 || !types[0].Requirements.Get(v1alpha1.LabelReservationID).Has(held) {
		t.Errorf("offerings %+v", types[0].Offerings)
	}
	// The reservation's other machines, where there are free ones, are what it stands for.
	other := machine("m2")
	other.UID = "uid-m2"
	if err := w.client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	w.settle("m2")
	for _, it := range w.types(nodePool("edge")) {
		for _, of := range it.Offerings {
			if of.ReservationID() == held && of.ReservationCapacity != 1 {
				t.Errorf("reservation %s has %d", held, of.ReservationCapacity)
			}
		}
	}
}

func TestTheCheapestMachineThatFitsIsClaimed(t *testing.T) {
	for name, tc := range map[string]struct {
		requirements []karpv1.NodeSelectorRequirementWithMinValues
		requests     string
		want         string
	}{
		"anything":        {want: "m2"},
		"in a rack":       {requirements: []karpv1.NodeSelectorRequirementWithMinValues{requires(rack, "a1")}, want: "m3"},
		"of a class":      {requirements: []karpv1.NodeSelectorRequirementWithMinValues{requires(v1alpha1.LabelHardwareClass, "server")}, want: "m4"},
		"large":           {requests: "9", want: "m4"},
		"nowhere":         {requirements: []karpv1.NodeSelectorRequirementWithMinValues{requires(corev1.LabelTopologyZone, "moon")}},
		"not reserved":    {requirements: []karpv1.NodeSelectorRequirementWithMinValues{requires(karpv1.CapacityTypeLabelKey, "spot")}},
		"one reservation": {requirements: []karpv1.NodeSelectorRequirementWithMinValues{requires(v1alpha1.LabelReservationID, "none")}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m1", priced("0.09")), machine("m2", priced("0.02")), machine("m3", priced("0.03"), inRack("a1")),
				machine("m4", priced("0.5"), func(m *inventory.Machine) {
					m.Spec.HardwareClass = "server"
					m.Spec.Capacity[corev1.ResourceCPU] = *quantity("16")
				}), nodePool("edge"))
			w.settle("m1", "m2", "m3", "m4")
			claim := nodeClaim("a", tc.requirements...)
			if tc.requests != "" {
				claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *quantity(tc.requests)}
			}
			created, err := w.launch(claim)
			if tc.want == "" {
				if !karpcloud.IsInsufficientCapacityError(err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || created.Status.ProviderID != inventory.ProviderID(tc.want) {
				t.Fatalf("machine %v, %v, want %s", created, err, tc.want)
			}
			m := w.machine(tc.want)
			for key, want := range map[string]string{
				corev1.LabelInstanceTypeStable: m.Status.InstanceType, v1alpha1.LabelMachine: tc.want, karpv1.CapacityTypeLabelKey: "reserved",
				v1alpha1.LabelHardwareClass: m.Spec.HardwareClass, rack: m.Spec.Labels[rack], "example.com/note": m.Spec.Labels["example.com/note"],
			} {
				if created.Labels[key] != want {
					t.Errorf("label %s is %q, want %q", key, created.Labels[key], want)
				}
			}
		})
	}
}

func TestReservedResourcesAreNotAllocatable(t *testing.T) {
	w := newWorld(t, machine("m1", func(m *inventory.Machine) {
		m.Spec.Reserved = corev1.ResourceList{corev1.ResourceCPU: *quantity("500m")}
	}), nodePool("edge"))
	w.settle("m1")
	created := w.mustLaunch(nodeClaim("a"))
	if cpu := created.Status.Allocatable[corev1.ResourceCPU]; cpu.Cmp(*quantity("3500m")) != 0 {
		t.Errorf("%s are allocatable", cpu.String())
	}
	if pods := created.Status.Capacity[corev1.ResourcePods]; pods.Value() != 110 {
		t.Errorf("%s pods", pods.String())
	}
}

// What Karpenter plans with is what the node's agent publishes.
func TestCoresAreDevices(t *testing.T) {
	w := newWorld(t, machine("m1", func(m *inventory.Machine) {
		m.Spec.Cores = &v1alpha1.CoreLayout{
			NUMANodes: 1, CoresPerNUMA: 4, Housekeeping: []int32{0}, BandwidthPPM: 950_000, Backend: "fifo",
			GranularityUs: 200, EscalationReservePPM: 50_000, EscalationCores: []int32{3},
		}
	}), nodePool("edge"))
	w.settle("m1")
	of := w.types(nodePool("edge"))[0]
	templates := of.DynamicResources.ResourceSliceTemplates
	if len(templates) != 1 || templates[0].Pool.Name.Value() != "cores-"+of.Name || templates[0].Driver.Value() != "cpu.mckube.io" || len(templates[0].Devices) != 3 {
		t.Fatalf("templates %+v", templates)
	}
	for i, reserve := range []rt.PPM{0, 0, 50_000} {
		core := rt.Core{ID: i + 1, Sibling: rt.NoSibling, Capacity: rt.MaxCapacity - reserve, EscalationReserve: reserve, Granularity: 200}
		want, got := rtdra.Device(core, "fifo"), templates[0].Devices[i]
		if got.Name.Value() != want.Name || !got.AllowMultipleAllocations || !reflect.DeepEqual(got.Attributes, want.Attributes) || !reflect.DeepEqual(got.Capacity, want.Capacity) {
			t.Errorf("device %+v, want %+v", got, want)
		}
	}
}

func TestANodeClassSelectsMachines(t *testing.T) {
	site := func(name string) func(*inventory.Machine) {
		return func(m *inventory.Machine) { m.Labels = map[string]string{"site": name} }
	}
	w := newWorld(t, machine("m1", site("a")), machine("m2", site("b"), func(m *inventory.Machine) { m.Spec.Zone = "hall-2" }), nodePool("edge"))
	w.settle("m1", "m2")
	class := w.nodeClass()
	class.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"site": "b"}}
	if err := w.client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	if types := w.types(nodePool("edge")); len(types) != 1 || types[0].Name != w.machine("m2").Status.InstanceType {
		t.Errorf("types %v", types)
	}
	claim := nodeClaim("a")
	if created := w.mustLaunch(claim); created.Status.ProviderID != "inventory://m2" {
		t.Errorf("machine %s", created.Status.ProviderID)
	}
	if _, err := w.launch(nodeClaim("b")); !karpcloud.IsInsufficientCapacityError(err) {
		t.Errorf("error %v", err)
	}
	class = w.nodeClass()
	class.Spec.Selector.MatchLabels["site"] = "a"
	if err := w.client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	if reason, err := w.provider.IsDrifted(t.Context(), claim); err != nil || reason != inventory.MachineNotSelected {
		t.Errorf("drift %q, %v", reason, err)
	}
	if types, err := w.provider.GetInstanceTypes(t.Context(), &karpv1.NodePool{Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{
		Spec: karpv1.NodeClaimTemplateSpec{NodeClassRef: &karpv1.NodeClassReference{Kind: nodeclass.Kind, Name: "none"}},
	}}}); err != nil || len(types) != 0 {
		t.Errorf("types %v, %v for a node class that is not there", types, err)
	}
}

func (w *world) nodeClass() *nodeclass.InventoryNodeClass {
	w.t.Helper()
	class := &nodeclass.InventoryNodeClass{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: "default"}, class); err != nil {
		w.t.Fatal(err)
	}
	return class
}

func (w *world) reconcileClass() *nodeclass.InventoryNodeClass {
	w.t.Helper()
	controller := w.provider.Controllers()[1].(reconcile.Reconciler)
	if _, err := controller.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "default"}}); err != nil {
		w.t.Fatal(err)
	}
	return w.nodeClass()
}

func TestANodeClassCountsItsMachines(t *testing.T) {
	empty := newWorld(t)
	class := empty.reconcileClass()
	expectCondition(t, class, status.ConditionReady, metav1.ConditionTrue, "Ready")
	expectCondition(t, class, nodeclass.ConditionCapacityAvailable, metav1.ConditionFalse, nodeclass.ReasonNoMachines)

	w := newWorld(t, machine("m1"), machine("m2", func(m *inventory.Machine) { m.Spec.Availability = v1alpha1.MachineWithheld }), nodePool("edge"))
	w.settle("m1", "m2")
	class = w.reconcileClass()
	expectCondition(t, class, nodeclass.ConditionCapacityAvailable, metav1.ConditionTrue, nodeclass.ReasonMachinesFree)
	w.mustLaunch(nodeClaim("a"))
	class = w.reconcileClass()
	expectCondition(t, class, status.ConditionReady, metav1.ConditionTrue, "Ready")
	full := expectCondition(t, class, nodeclass.ConditionCapacityAvailable, metav1.ConditionFalse, nodeclass.ReasonInventoryFull)
	if want := "of 2 machines 0 are free, 1 claimed and 1 unavailable"; full.Message != want {
		t.Errorf("message %q, want %q", full.Message, want)
	}
	if s := class.Status; s.Machines != 2 || s.Free != 0 || s.Claimed != 1 || s.Unavailable != 1 {
		t.Errorf("status %+v", s)
	}
	class.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	if err := w.client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, w.reconcileClass(), status.ConditionReady, metav1.ConditionFalse, "InvalidSelector")
}

func expectCondition(t *testing.T, class *nodeclass.InventoryNodeClass, kind string, holds metav1.ConditionStatus, reason string) *status.Condition {
	t.Helper()
	c := class.StatusConditions(status.WithObservedOnly()).Get(kind)
	if c == nil || c.Status != holds || c.Reason != reason {
		t.Fatalf("condition %s is %+v, want %s %s", kind, c, holds, reason)
	}
	return c
}

func TestRepairPoliciesAreOneSet(t *testing.T) {
	fallbacks := 0
	for _, p := range newWorld(t).provider.RepairPolicies() {
		if p.ReasonRegex == "" {
			fallbacks++
			if p.Action != karpcloud.ReplaceNode {
				t.Errorf("fallback %+v", p)
			}
		}
	}
	if fallbacks != 1 {
		t.Errorf("%d fallbacks; Karpenter wants one", fallbacks)
	}
}
