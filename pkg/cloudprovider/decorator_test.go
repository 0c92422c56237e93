package cloudprovider_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

func TestMain(m *testing.M) {
	cloudprovider.RegisterLabels()
	os.Exit(m.Run())
}

// inner is a provider whose answer a test sets.
type inner struct {
	karpcloud.CloudProvider
	types []*karpcloud.InstanceType
	err   error
}

func (i *inner) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	return i.types, i.err
}

func machines(t testing.TB) *catalogue.Catalogue {
	t.Helper()
	c, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fresh(t testing.TB) []*karpcloud.InstanceType {
	t.Helper()
	types, err := simulated.InstanceTypes(context.Background(), machines(t))
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func pool(name string) *karpv1.NodePool {
	np := &karpv1.NodePool{}
	np.Name = name
	return np
}

func get(t testing.TB, p karpcloud.CloudProvider, np *karpv1.NodePool) []*karpcloud.InstanceType {
	t.Helper()
	types, err := p.GetInstanceTypes(context.Background(), np)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func named(t testing.TB, types []*karpcloud.InstanceType, name string) *karpcloud.InstanceType {
	t.Helper()
	i := slices.IndexFunc(types, func(it *karpcloud.InstanceType) bool { return it.Name == name })
	if i < 0 {
		t.Fatalf("no instance type %q", name)
	}
	return types[i]
}

func TestDecorateAddsLabels(t *testing.T) {
	stranger := &karpcloud.InstanceType{Name: "m5.large", Requirements: scheduling.NewRequirements()}
	own := &karpcloud.InstanceType{Name: "c-1x-amd64-linux", Requirements: scheduling.NewRequirements(
		scheduling.NewRequirement(v1alpha1.LabelHardwareClass, corev1.NodeSelectorOpIn, "mine"),
	)}
	types := get(t, cloudprovider.Decorate(&inner{types: append(fresh(t)[1:], stranger, own)}, machines(t)), pool("p"))
	for _, tc := range []struct {
		name string
		want map[string]string
	}{
		{"s-4x-amd64-linux", map[string]string{v1alpha1.LabelHardwareClass: "general", v1alpha1.LabelWattsIdle: "9.23", v1alpha1.LabelWattsMax: "20.27", v1alpha1.LabelDeviceWattsMax: ""}},
		{"t4-1g-4x-amd64-linux", map[string]string{v1alpha1.LabelHardwareClass: "gpu", v1alpha1.LabelGPUModel: "T4", v1alpha1.LabelDeviceWattsIdle: "8", v1alpha1.LabelDeviceWattsMax: "71"}},
		{"rngd-1n-16x-amd64-linux", map[string]string{v1alpha1.LabelHardwareClass: "npu", v1alpha1.LabelNPUModel: "RNGD", v1alpha1.LabelGPUModel: ""}},
		{"edge-core-8x-amd64-linux", map[string]string{v1alpha1.LabelHardwareClass: "edge", v1alpha1.LabelGPUModel: "", v1alpha1.LabelNPUModel: ""}},
		{"m5.large", map[string]string{v1alpha1.LabelHardwareClass: "", v1alpha1.LabelGPUModel: "", v1alpha1.LabelWattsMax: ""}},
		{"c-1x-amd64-linux", map[string]string{v1alpha1.LabelHardwareClass: "mine"}},
	} {
		it := named(t, types, tc.name)
		for key, want := range tc.want {
			r, defined := it.Requirements[key]
			switch {
			case !defined:
				t.Errorf("%s: %s is undefined, which Karpenter takes for a match", tc.name, key)
			case want == "" && r.Operator() != corev1.NodeSelectorOpDoesNotExist:
				t.Errorf("%s: %s is %s, want absent", tc.name, key, r)
			case want != "" && (r.Operator() != corev1.NodeSelectorOpIn || !slices.Equal(r.Values(), []string{want})):
				t.Errorf("%s: %s is %s, want %q", tc.name, key, r, want)
			}
		}
	}
}

func TestDecorateAddsCores(t *testing.T) {
	types := get(t, cloudprovider.Decorate(&inner{types: fresh(t)}, machines(t)), pool("p"))
	if n := len(named(t, types, "s-4x-amd64-linux").DynamicResources.ResourceSliceTemplates); n != 0 {
		t.Errorf("a machine without RT cores has %d templates", n)
	}
	templates := named(t, types, "edge-core-8x-amd64-linux").DynamicResources.ResourceSliceTemplates
	if len(templates) != 1 || templates[0].Driver.Value() != "cpu.mckube.io" || len(templates[0].Devices) != 6 {
		t.Fatalf("templates %+v, want one of cpu.mckube.io with 6 of 8 CPUs", templates)
	}
	d := templates[0].Devices[0]
	capacity := d.Capacity["rtBandwidth"].Value
	if d.Name.Value() != "core-1" || !d.AllowMultipleAllocations || capacity.String() != "900k" || capacity.Value() != 900_000 {
		t.Errorf("device %s, shared %v, bandwidth %s", d.Name.Value(), d.AllowMultipleAllocations, capacity.String())
	}
	if id, numa, sibling := *d.Attributes["coreID"].IntValue, *d.Attributes["numaNode"].IntValue, *d.Attributes["smtSibling"].IntValue; id != 1 || numa != 0 || sibling != 5 {
		t.Errorf("core %d on node %d with sibling %d, want 1, 0, 5", id, numa, sibling)
	}
}

// What Karpenter plans with is what the node's agent will publish, or a pod is planned for a node that
// then cannot take it.
// Karpenter remembers for each device of a pool whether it is what a claim selects, whatever the instance type.
func TestCoresOfEachMachineAreInAPoolOfTheirOwn(t *testing.T) {
	decorated := cloudprovider.Decorate(&inner{types: fresh(t)}, machines(t))
	types, err := decorated.GetInstanceTypes(t.Context(), pool("edge"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, it := range types {
		for _, template := range it.DynamicResources.ResourceSliceTemplates {
			name := template.Pool.Name.Value()
			if other := seen[name]; other != "" {
				t.Errorf("%s and %s have pool %s", other, it.Name, name)
			}
			seen[name] = it.Name
		}
	}
	if len(seen) < 2 {
		t.Errorf("%d machines have cores", len(seen))
	}
}

func TestTemplatesAreWhatNodesPublish(t *testing.T) {
	types := get(t, cloudprovider.Decorate(&inner{types: fresh(t)}, machines(t)), pool("p"))
	reserved := 0
	for _, machine := range machines(t).InstanceTypes {
		if machine.RT == nil {
			continue
		}
		templates := named(t, types, machine.Name).DynamicResources.ResourceSliceTemplates
		published := machine.RT.Devices()
		if len(templates) != 1 || len(templates[0].Devices) != len(published) {
			t.Fatalf("%s: templates %+v for %d devices", machine.Name, templates, len(published))
		}
		for i, want := range published {
			got := templates[0].Devices[i]
			if got.Name.Value() != want.Name || got.AllowMultipleAllocations != *want.AllowMultipleAllocations ||
				!reflect.DeepEqual(got.Attributes, want.Attributes) || !reflect.DeepEqual(got.Capacity, want.Capacity) {
				t.Errorf("%s: device %+v, the node publishes %+v", machine.Name, got, want)
			}
			core, err := rtdra.CoreOf(want)
			if err != nil {
				t.Fatal(err)
			}
			if core.Capacity+core.EscalationReserve != rt.MaxCapacity {
				t.Errorf("%s core %d: %d ppm and a reserve of %d ppm", machine.Name, core.ID, core.Capacity, core.EscalationReserve)
			}
			if core.EscalationReserve > 0 {
				reserved++
			}
		}
	}
	if reserved == 0 {
		t.Error("no machine of the catalogue has cores with an escalation reserve")
	}
}

func TestDecorateSetsThePricesOfTheCatalogue(t *testing.T) {
	machine, _ := machines(t).Lookup("s-4x-amd64-linux")
	offering := func(capacityType string) *karpcloud.Offering {
		return &karpcloud.Offering{Price: 9, Available: true, Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, capacityType))}
	}
	for name, want := range map[string]map[string]float64{
		machine.Name: {karpv1.CapacityTypeOnDemand: machine.Price.OnDemand, karpv1.CapacityTypeSpot: machine.Price.Spot, karpv1.CapacityTypeReserved: 9},
		"m5.large":   {karpv1.CapacityTypeOnDemand: 9, karpv1.CapacityTypeSpot: 9, karpv1.CapacityTypeReserved: 9},
	} {
		for capacityType, price := range want {
			original := offering(capacityType)
			it := &karpcloud.InstanceType{Name: name, Requirements: scheduling.NewRequirements(), Offerings: karpcloud.Offerings{original}}
			decorated := get(t, cloudprovider.Decorate(&inner{types: []*karpcloud.InstanceType{it}}, machines(t)), pool("p"))[0].Offerings[0]
			if decorated.Price != price || !decorated.Available {
				t.Errorf("%s %s costs %g, available %v, want %g", name, capacityType, decorated.Price, decorated.Available, price)
			}
			if original.Price != 9 {
				t.Errorf("%s %s: the inner provider's offering was changed", name, capacityType)
			}
		}
	}
}

func TestDecorateKeepsWhatTheInnerProviderDeclares(t *testing.T) {
	types := fresh(t)
	decorated := get(t, cloudprovider.Decorate(&inner{types: types}, machines(t)), pool("p"))
	i := slices.IndexFunc(types, func(it *karpcloud.InstanceType) bool { return it.Name == "edge-core-8x-amd64-linux" })
	again := get(t, cloudprovider.Decorate(&inner{types: []*karpcloud.InstanceType{decorated[i]}}, machines(t)), pool("p"))
	if n := len(again[0].DynamicResources.ResourceSliceTemplates); n != 1 {
		t.Errorf("decorated twice: %d templates", n)
	}
	if types[i].DynamicResources.ResourceSliceTemplates != nil {
		t.Error("the inner instance type has changed")
	}
}

func TestDecoratePassesErrorsOn(t *testing.T) {
	want := karpcloud.NewUnevaluatedNodePoolError("p")
	_, err := cloudprovider.Decorate(&inner{err: want}, machines(t)).GetInstanceTypes(context.Background(), pool("p"))
	if !errors.Is(err, error(want)) {
		t.Errorf("error %v", err)
	}
}

func TestDecorateAnswersFromCacheWithoutAllocating(t *testing.T) {
	in := &inner{types: fresh(t)}
	p, np := cloudprovider.Decorate(in, machines(t)), pool("p")
	first := get(t, p, np)
	if n := testing.AllocsPerRun(100, func() { _, _ = p.GetInstanceTypes(context.Background(), np) }); n != 0 {
		t.Errorf("%v allocations in an answer from the cache", n)
	}
	if other := get(t, p, pool("q")); !slices.Equal(first, other) {
		t.Error("two NodePools with the same types have different pointers")
	}
	if again := get(t, p, nil); !slices.Equal(first, again) {
		t.Error("no NodePool: different pointers")
	}
}

func TestDecorateFollowsTheInnerProvider(t *testing.T) {
	types := fresh(t)
	in := &inner{types: types}
	p := cloudprovider.Decorate(in, machines(t))
	before := get(t, p, pool("p"))
	changed := &karpcloud.InstanceType{Name: types[0].Name, Requirements: types[0].Requirements}
	in.types = slices.Clone(types)
	in.types[0] = changed
	after := get(t, p, pool("p"))
	if after[0] == before[0] || len(after[0].Offerings) != 0 {
		t.Error("a new inner instance type is answered with the old one")
	}
	if !slices.Equal(after[1:], before[1:]) {
		t.Error("unchanged instance types have new pointers")
	}
	in.types = types[:2]
	if n := len(get(t, p, pool("p"))); n != 2 {
		t.Errorf("%d instance types, want 2", n)
	}
}

// Whatever the inner provider answers for whichever NodePool, the decorator's answer has the same
// types in the same order, equal answers are the same pointers, and nothing of the inner provider's
// changes.
func TestDecorateIsPure(t *testing.T) {
	c := machines(t)
	rapid.Check(t, func(t *rapid.T) {
		in := &inner{}
		p := cloudprovider.Decorate(in, c)
		var all []*karpcloud.InstanceType
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(c.InstanceTypes), 1, 8).Draw(t, "types") {
			all = append(all, &karpcloud.InstanceType{Name: name.Name, Requirements: scheduling.NewRequirements()})
		}
		decorated := map[*karpcloud.InstanceType]*karpcloud.InstanceType{}
		for range 10 {
			in.types = rapid.Permutation(all).Draw(t, "answer")[:rapid.IntRange(0, len(all)).Draw(t, "length")]
			np := pool(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pool"))
			first, err := p.GetInstanceTypes(context.Background(), np)
			if err != nil || len(first) != len(in.types) {
				t.Fatalf("%d types for %d, %v", len(first), len(in.types), err)
			}
			second, _ := p.GetInstanceTypes(context.Background(), np)
			if !slices.Equal(first, second) {
				t.Fatalf("two answers to the same question differ")
			}
			for i, it := range first {
				if it.Name != in.types[i].Name {
					t.Fatalf("type %d is %s, want %s", i, it.Name, in.types[i].Name)
				}
				if d := decorated[in.types[i]]; d != nil && !reflect.DeepEqual(d.Requirements, it.Requirements) {
					t.Fatalf("%s was decorated differently before", it.Name)
				}
				decorated[in.types[i]] = it
			}
		}
		for _, it := range all {
			if len(it.Requirements) != 0 || it.DynamicResources.ResourceSliceTemplates != nil {
				t.Fatalf("inner instance type %s has changed", it.Name)
			}
		}
	})
}

func TestDecorateIsSafeForConcurrentUse(t *testing.T) {
	in := &inner{types: fresh(t)}
	p := cloudprovider.Decorate(in, machines(t))
	want := get(t, p, pool("p0"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := p.GetInstanceTypes(context.Background(), pool("p"+string(rune('0'+i)))); err != nil || !slices.Equal(got, want) {
					t.Errorf("answer differs, %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkDecorate(b *testing.B) {
	in := &inner{types: fresh(b)}
	for len(in.types) < 400 {
		in.types = append(in.types, fresh(b)...)
	}
	p, np := cloudprovider.Decorate(in, machines(b)), pool("p")
	get(b, p, np)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.GetInstanceTypes(context.Background(), np)
	}
}
