package simulated_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

func TestCreateChoosesTheCheapestOffering(t *testing.T) {
	for _, tc := range []struct {
		name         string
		requirements []karpv1.NodeSelectorRequirementWithMinValues
		pool         []karpv1.NodeSelectorRequirementWithMinValues
		cpu          string
		want         string
	}{
		{name: "anything", want: "spot small"},
		{name: "on demand", requirements: reqs(requires(karpv1.CapacityTypeLabelKey, "on-demand")), want: "on-demand small"},
		{name: "by size of requests", cpu: "4", want: "spot large"},
		{name: "by type", requirements: reqs(requires(corev1.LabelInstanceTypeStable, "large")), want: "spot large"},
		{name: "in a zone", requirements: reqs(requires(corev1.LabelTopologyZone, "zone-b")), want: "spot small zone-b"},
		{
			name: "edge by name", pool: reqs(requires(v1alpha1.LabelHardwareClass, "edge")),
			requirements: reqs(requires(v1alpha1.LabelHardwareClass, "edge")), want: "on-demand box",
		},
		{
			name: "reserved by name", pool: reqs(requires(karpv1.CapacityTypeLabelKey, "reserved", "spot")),
			requirements: reqs(requires(karpv1.CapacityTypeLabelKey, "reserved", "spot")), want: "reserved large zone-a",
		},
		{
			name: "reserved by name, whatever else the pool says of the capacity type",
			pool: reqs(requires(karpv1.CapacityTypeLabelKey, "reserved"), karpv1.NodeSelectorRequirementWithMinValues{
				Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"spot"},
			}),
			requirements: reqs(requires(karpv1.CapacityTypeLabelKey, "reserved")), want: "reserved large zone-a",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, interceptor.Funcs{}, nodePool("pool", tc.pool...))
			claim := nodeClaim("claim", "pool", tc.requirements...)
			if tc.cpu != "" {
				claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(tc.cpu)}
			}
			created, err := w.provider.Create(context.Background(), claim)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(created); !strings.HasPrefix(got, tc.want) {
				t.Errorf("launched %s, want %s", got, tc.want)
			}
		})
	}
}

func reqs(r ...karpv1.NodeSelectorRequirementWithMinValues) []karpv1.NodeSelectorRequirementWithMinValues {
	return r
}

func TestCreateHydratesTheNodeClaim(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	claim := nodeClaim("claim", "pool", requires(corev1.LabelTopologyZone, "zone-a"))
	created, err := w.provider.Create(context.Background(), claim)
	if err != nil {
		t.Fatal(err)
	}
	node := simulated.NodeName("claim", claim.UID)
	if created.Status.ProviderID != "kwok://"+node {
		t.Errorf("provider ID %q, want kwok://%s", created.Status.ProviderID, node)
	}
	for key, want := range map[string]string{
		karpv1.NodePoolLabelKey:        "pool",
		corev1.LabelHostname:           node,
		corev1.LabelArchStable:         "amd64",
		corev1.LabelOSStable:           "linux",
		kwokapi.InstanceFamilyLabelKey: "s",
		kwokapi.InstanceCPULabelKey:    "2",
		kwokapi.InstanceMemoryLabelKey: "8Gi",
		kwokapi.NodeViewerLabelKey:     "0.500000",
		v1alpha1.LabelHardwareClass:    "general",
		v1alpha1.LabelWattsIdle:        "10",
		v1alpha1.LabelWattsMax:         "20",
	} {
		if got := created.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if _, ok := created.Labels[v1alpha1.LabelReservationID]; ok {
		t.Error("a spot machine has a reservation ID")
	}
	if got := created.Annotations[v1alpha1.AnnotationPricePerHour]; got != "0.5" {
		t.Errorf("price %q, want 0.5", got)
	}
	if got := created.Status.Allocatable.Cpu().String(); got != "1900m" {
		t.Errorf("allocatable cpu %s, want 1900m", got)
	}
	if got := created.Status.Capacity.Cpu().String(); got != "2" {
		t.Errorf("capacity cpu %s, want 2", got)
	}
}

func TestCreateSpreadsEqualPricesOverZones(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	zones := map[string]int{}
	for i := range 40 {
		created, err := w.provider.Create(context.Background(), nodeClaim(fmt.Sprintf("claim-%d", i), "pool"))
		if err != nil {
			t.Fatal(err)
		}
		zones[created.Labels[corev1.LabelTopologyZone]]++
	}
	if zones["zone-a"] < 10 || zones["zone-b"] < 10 {
		t.Errorf("40 launches went to %v", zones)
	}
}

// The process died after Karpenter's first patch: the second launch must finish the first even
// though another offering is cheaper by now.
func TestCreateRepeatsARecordedLaunch(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	claim := nodeClaim("claim", "pool")
	created, err := w.provider.Create(context.Background(), claim)
	if err != nil {
		t.Fatal(err)
	}
	claim.Labels, claim.Annotations = created.Labels, created.Annotations
	w.create(t, fault("short", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultShortage, Selector: v1alpha1.FaultSelector{InstanceTypes: []string{"small"}}}))
	w.restart(t)
	again, err := w.provider.Create(context.Background(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if describe(again) != describe(created) || again.Status.ProviderID != created.Status.ProviderID {
		t.Errorf("launched %s (%s), then %s (%s)", describe(created), created.Status.ProviderID, describe(again), again.Status.ProviderID)
	}
}

func TestCreateDoesNotOverbookReservations(t *testing.T) {
	reserved := requires(karpv1.CapacityTypeLabelKey, "reserved")
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool", reserved))
	claims := make([]*karpv1.NodeClaim, 3)
	for i := range claims {
		claims[i] = nodeClaim(fmt.Sprintf("claim-%d", i), "pool", reserved)
		w.create(t, claims[i])
	}
	for _, claim := range claims[:2] {
		created, err := w.provider.Create(context.Background(), claim) // decided, not recorded yet
		if err != nil {
			t.Fatal(err)
		}
		if got := created.Labels[v1alpha1.LabelReservationID]; got != reservationID {
			t.Errorf("reservation ID %q", got)
		}
	}
	if _, err := w.provider.Create(context.Background(), claims[2]); !karpcloud.IsInsufficientCapacityError(err) {
		t.Fatalf("third machine of a reservation of two: %v", err)
	}
	if of := offeringOf(t, w.types(t, nodePool("pool", reserved))["large"], "reserved", "zone-a"); of.ReservationCapacity != 0 {
		t.Errorf("capacity on offer %d, want 0", of.ReservationCapacity)
	}
	if err := w.launch("claim-0"); err != nil { // recorded now: not counted twice
		t.Fatal(err)
	}
	// A NodeClaim whose launch was only decided gives its place back when it goes.
	deleteClaim(t, w, "claim-1")
	if of := offeringOf(t, w.types(t, nodePool("pool", reserved))["large"], "reserved", "zone-a"); of.ReservationCapacity != 1 {
		t.Errorf("capacity on offer %d, want 1", of.ReservationCapacity)
	}
	if _, err := w.provider.Create(context.Background(), claims[2]); err != nil {
		t.Errorf("launching into the freed place: %v", err)
	}
}

func deleteClaim(t failer, w *world, name string) {
	t.Helper()
	claim := w.claim(t, name)
	claim.Finalizers = nil
	if err := w.client.Update(context.Background(), claim); err != nil {
		t.Fatalf("removing finalizers: %v", err)
	}
	if err := w.client.Delete(context.Background(), claim); err != nil {
		t.Fatalf("deleting: %v", err)
	}
}

func TestCreateErrors(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	lost := nodeClaim("lost", "pool")
	lost.Spec.NodeClassRef.Name = "missing"
	if _, err := w.provider.Create(context.Background(), lost); !karpcloud.IsInsufficientCapacityError(err) {
		t.Errorf("missing node class: %v", err)
	}
	impossible := nodeClaim("impossible", "pool", requires(corev1.LabelArchStable, "arm64"))
	if _, err := w.provider.Create(context.Background(), impossible); !karpcloud.IsInsufficientCapacityError(err) {
		t.Errorf("no such machine: %v", err)
	}
	class := nodeClass()
	class.Name = "unready"
	class.Status.Conditions = []status.Condition{{Type: status.ConditionReady, Status: metav1.ConditionFalse, Message: "being built"}}
	w.create(t, class)
	waiting := nodeClaim("waiting", "pool")
	waiting.Spec.NodeClassRef.Name = "unready"
	if _, err := w.provider.Create(context.Background(), waiting); !karpcloud.IsNodeClassNotReadyError(err) || !strings.Contains(err.Error(), "being built") {
		t.Errorf("node class not ready: %v", err)
	}
}

// A static NodePool's NodeClaims name no instance types.
func TestCreateWithoutNodePool(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{})
	created, err := w.provider.Create(context.Background(), nodeClaim("alone", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(created); got != "on-demand box zone-a" && got != "on-demand box zone-b" {
		t.Errorf("launched %s, want the cheapest of everything", got)
	}
	created, err = w.provider.Create(context.Background(), nodeClaim("picky", "", requires(v1alpha1.LabelHardwareClass, "general")))
	if err != nil || created.Labels[v1alpha1.LabelHardwareClass] != "general" {
		t.Errorf("launched %v, %v, want a general machine", created, err)
	}
}

// pricedView doubles as a NodeOverlay: it makes one type dearer.
type pricedView struct {
	karpcloud.CloudProvider
	dearer string
}

func (v pricedView) GetInstanceTypes(ctx context.Context, np *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	types, err := v.CloudProvider.GetInstanceTypes(ctx, np)
	result := make([]*karpcloud.InstanceType, len(types))
	for i, it := range types {
		result[i] = &karpcloud.InstanceType{}
		it.DeepCopyInto(result[i])
		for _, of := range result[i].Offerings {
			if it.Name == v.dearer {
				of.ApplyPriceOverlay("+1000%")
			}
		}
	}
	return result, err
}

func TestCreateGoesByThePricesOfTheView(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	w.provider.LaunchAtPricesOf(pricedView{w.provider, "small"})
	created, err := w.provider.Create(context.Background(), nodeClaim("claim", "pool"))
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(created); !strings.HasPrefix(got, "spot large") {
		t.Errorf("launched %s, want the type that is cheapest in the view", got)
	}
}

func TestShortageTakesOfferingsOffTheList(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	before := w.types(t, nodePool("pool"))
	w.create(t, fault("short", v1alpha1.SimulatedFaultSpec{
		Type: v1alpha1.FaultShortage, Duration: &metav1.Duration{Duration: time.Minute},
		Selector: v1alpha1.FaultSelector{InstanceTypes: []string{"small"}, CapacityTypes: []string{"spot"}, NodePools: []string{"pool"}},
	}))
	during := w.types(t, nodePool("pool"))
	if offeringOf(t, during["small"], "spot", "zone-a").Available || !offeringOf(t, during["small"], "on-demand", "zone-a").Available {
		t.Error("not exactly the selected offerings are unavailable")
	}
	if !offeringOf(t, before["small"], "spot", "zone-a").Available {
		t.Error("an instance type that was handed out has changed")
	}
	if during["large"] != before["large"] {
		t.Error("an untouched instance type is another pointer")
	}
	if w.types(t, nodePool("pool"))["small"] != during["small"] {
		t.Error("the same state is another pointer")
	}
	if w.types(t, nodePool("other"))["small"] != before["small"] {
		t.Error("a NodePool that is not selected is struck")
	}
	created, err := w.provider.Create(context.Background(), nodeClaim("claim", "pool"))
	if err != nil || !strings.HasPrefix(describe(created), "on-demand small") {
		t.Errorf("launched %v, %v", created, err)
	}
	w.clock.Step(time.Minute)
	if w.types(t, nodePool("pool"))["small"] != before["small"] {
		t.Error("the shortage outlasts its duration")
	}
}

func TestCountedShortageRefusesThatManyLaunches(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{}, nodePool("pool"))
	w.create(t, fault("short", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultShortage, Count: ptr.To[int32](2)}))
	refused := 0
	for i := range 5 {
		claim := nodeClaim(fmt.Sprintf("claim-%d", i), "pool")
		w.create(t, claim)
		for range 2 { // a retry of the same NodeClaim is not another one
			w.restart(t)
			_, err := w.provider.Create(context.Background(), claim)
			if karpcloud.IsInsufficientCapacityError(err) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if refused != 4 {
		t.Errorf("%d launches refused, want 2 NodeClaims twice", refused)
	}
	f := w.fault(t, "short")
	if len(f.Status.Affected) != 2 || f.Status.AffectedCount != 2 {
		t.Errorf("affected %v (%d)", f.Status.Affected, f.Status.AffectedCount)
	}
	if !offeringOf(t, w.types(t, nodePool("pool"))["small"], "spot", "zone-a").Available {
		t.Error("a counted shortage takes offerings off the list")
	}
}
