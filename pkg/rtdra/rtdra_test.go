package rtdra_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

const granularity = 100

func mckube(name string, s mcv1.RTSettings, options ...func(*mcv1.McKube)) *mcv1.McKube {
	m := &mcv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "42"},
		Spec:       mcv1.McKubeSpec{Podname: "app", Criticality: "high", RTSettings: &s},
	}
	for _, o := range options {
		o(m)
	}
	return m
}

func limited(m *mcv1.McKube) { m.Spec.Escalation = &mcv1.Escalation{Admission: mcv1.AdmissionLimited} }

func low(m *mcv1.McKube) { m.Spec.Criticality = mcv1.CriticalityLow }

// asked is the bandwidth of each way to serve the claim, and whether the core may serve it.
func asked(t interface{ Fatal(...any) }, spec resourcev1.ResourceClaimSpec, core rt.Core) (ppm []int64, matches []bool) {
	way := func(capacity *resourcev1.CapacityRequirements, selectors []resourcev1.DeviceSelector) {
		share := capacity.Requests[v1alpha1.CapacityRTBandwidth]
		ppm = append(ppm, share.Value())
		matches = append(matches, matchesAll(t, selectors, core))
	}
	r := spec.Devices.Requests[0]
	if r.Exactly != nil {
		way(r.Exactly.Capacity, r.Exactly.Selectors)
	}
	for _, sub := range r.FirstAvailable {
		way(sub.Capacity, sub.Selectors)
	}
	return ppm, matches
}

// matchesAll judges with the scheduler's own evaluator.
func matchesAll(t interface{ Fatal(...any) }, selectors []resourcev1.DeviceSelector, core rt.Core) bool {
	d := rtdra.Device(core, "simulated")
	for _, s := range selectors {
		compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(s.CEL.Expression, cel.Options{})
		if compiled.Error != nil {
			t.Fatal(s.CEL.Expression, compiled.Error)
		}
		if compiled.MaxCost > resourcev1.CELSelectorExpressionMaxCost || len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength {
			t.Fatal("the API server would refuse", s.CEL.Expression)
		}
		ok, _, err := compiled.DeviceMatches(context.Background(), cel.Device{Driver: v1alpha1.DriverCPU, AllowMultipleAllocations: ptr.To(true), Attributes: d.Attributes, Capacity: d.Capacity})
		if err != nil {
			t.Fatal(s.CEL.Expression, err)
		}
		if !ok {
			return false
		}
	}
	return true
}

func TestTemplateAsksForWhatIsCharged(t *testing.T) {
	settings := mcv1.RTSettings{Period: 10_000, RuntimeLow: 1_000, RuntimeHi: 2_000}
	two := settings
	two.Core = ptr.To("2-3")
	core := rt.Core{ID: 2, Sibling: rt.NoSibling, Capacity: 900_000, Granularity: 100}
	coarse, reserved, other := core, core, core
	coarse.Granularity, reserved.EscalationReserve, other.ID = 101, 100_000, 4
	for name, tc := range map[string]struct {
		m       *mcv1.McKube
		core    rt.Core
		ppm     []int64
		matches []bool
	}{
		"high budget":                 {mckube("m", settings), core, []int64{210_000}, []bool{true}},
		"low criticality":             {mckube("m", settings, low), core, []int64{110_000}, []bool{true}},
		"coarse core":                 {mckube("m", settings), coarse, []int64{210_000}, []bool{false}},
		"limited":                     {mckube("m", settings, limited), reserved, []int64{110_000}, []bool{true}},
		"limited without reserve":     {mckube("m", settings, limited), core, []int64{110_000}, []bool{false}},
		"limited that never goes up":  {mckube("m", settings, limited, low), core, []int64{110_000}, []bool{true}},
		"sound on a reserved core":    {mckube("m", settings), reserved, []int64{210_000}, []bool{true}},
		"preferred core":              {mckube("m", two), core, []int64{210_000, 210_000}, []bool{true, true}},
		"another than preferred":      {mckube("m", two), other, []int64{210_000, 210_000}, []bool{false, true}},
		"preferred, limited, reserve": {mckube("m", two, limited), reserved, []int64{110_000, 110_000}, []bool{true, true}},
	} {
		template, err := rtdra.Template(tc.m, granularity)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ppm, matches := asked(t, template.Spec.Spec, tc.core)
		if !slices.Equal(ppm, tc.ppm) || !slices.Equal(matches, tc.matches) {
			t.Errorf("%s: %v %v, want %v %v", name, ppm, matches, tc.ppm, tc.matches)
		}
	}
}

func TestTemplateIsOwnedAndNamedByWhatItAsks(t *testing.T) {
	settings := mcv1.RTSettings{Period: 10_000, RuntimeLow: 1_000, RuntimeHi: 2_000}
	m := mckube("m", settings)
	template, err := rtdra.Template(m, granularity)
	if err != nil {
		t.Fatal(err)
	}
	owner := template.OwnerReferences[0]
	if owner.Kind != "McKube" || owner.Name != "m" || owner.UID != "42" || owner.APIVersion != "mcoperator.sdv.com/v1" {
		t.Errorf("owner %+v", owner)
	}
	names := map[string]string{}
	wider := settings
	wider.RuntimeHi = 3_000
	preferring := settings
	preferring.Core = ptr.To("1")
	for what, m := range map[string]*mcv1.McKube{
		"m": m, "other budget": mckube("m", wider), "other core": mckube("m", preferring),
		"other criticality": mckube("m", settings, low), "other McKube": mckube("n", settings),
	} {
		name, err := rtdra.TemplateName(m, granularity)
		if err != nil {
			t.Fatal(err)
		}
		if double, ok := names[name]; ok {
			t.Errorf("%s and %s are both %s", what, double, name)
		}
		names[name] = what
	}
	sameClaim := mckube("m", settings)
	sameClaim.Spec.Migration, sameClaim.UID = &mcv1.Migration{Policy: mcv1.MigrationNever}, "43"
	if name, _ := rtdra.TemplateName(sameClaim, granularity); name != template.Name {
		t.Error("what the claim does not ask for changes the template's name")
	}
	if spec, err := rtdra.ClaimSpec(m, granularity); err != nil || !reflect.DeepEqual(spec, template.Spec.Spec) {
		t.Errorf("claim %v, %v", spec, err)
	}
}

func TestTemplateSaysWhatIsWrong(t *testing.T) {
	none := mckube("m", mcv1.RTSettings{})
	none.Spec.RTSettings = nil
	for want, m := range map[string]*mcv1.McKube{
		"McKube m has no rtSettings":          none,
		"rtSettings.period: 1us":              mckube("m", mcv1.RTSettings{Period: 1, RuntimeLow: 1, RuntimeHi: 1}),
		"rtSettings.runtime_hi: 9600us":       mckube("m", mcv1.RTSettings{Period: 10_000, RuntimeLow: 1, RuntimeHi: 9_600}),
		`rtSettings.core is "7-3"`:            mckube("m", mcv1.RTSettings{Period: 10_000, RuntimeLow: 1, RuntimeHi: 2, Core: ptr.To("7-3")}),
		`criticality: "urgent" is not one of`: mckube("m", mcv1.RTSettings{Period: 10_000, RuntimeLow: 1, RuntimeHi: 2}, func(m *mcv1.McKube) { m.Spec.Criticality = "urgent" }),
	} {
		if _, err := rtdra.Template(m, granularity); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if _, err := rtdra.TemplateName(m, granularity); err == nil {
			t.Errorf("%s: it has a name", want)
		}
	}
}

func TestServerOfTakesEverything(t *testing.T) {
	m := mckube("m", mcv1.RTSettings{
		Period: 10_000, Deadline: ptr.To(int64(8_000)), RuntimeLow: 1_000, RuntimeHi: 4_000, Core: ptr.To("0,2"),
		Levels: []mcv1.Level{{Name: "more", Runtime: 3_000}, {Name: "some", Runtime: 2_000}},
	}, limited)
	got, err := rtdra.ServerOf(m, "uid", "app")
	want := rt.Server{
		ID: "uid/app", Criticality: rt.High, Period: 10_000, Deadline: 8_000, Low: 1_000, High: 4_000,
		Levels: []int64{2_000, 3_000}, Limited: true, Preferred: []int{0, 2},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDeviceClassIsTheChartsOne(t *testing.T) {
	installed, err := charts.DeviceClass()
	if err != nil || !reflect.DeepEqual(installed, withType(rtdra.DeviceClass())) {
		t.Errorf("%+v, %v", installed, err)
	}
}

func withType(c *resourcev1.DeviceClass) *resourcev1.DeviceClass {
	c.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass"}
	return c
}

func TestCoreOfRefusesWhatIsNoCore(t *testing.T) {
	whole := func() resourcev1.Device { return rtdra.Device(rt.Core{ID: 1, Capacity: 900_000}, "cfs") }
	noID, noGranularity, noCapacity := whole(), whole(), whole()
	delete(noID.Attributes, v1alpha1.AttributeCoreID)
	noGranularity.Attributes[v1alpha1.AttributeGranularity] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(-1))}
	noCapacity.Capacity = nil
	for want, d := range map[string]resourcev1.Device{"coreID": noID, "granularityUs": noGranularity, "rtBandwidth": noCapacity} {
		if _, err := rtdra.CoreOf(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	little := whole()
	delete(little.Attributes, v1alpha1.AttributeSMTSibling)
	delete(little.Attributes, v1alpha1.AttributeBackend)
	if core, err := rtdra.CoreOf(little); err != nil || core.Sibling != rt.NoSibling || core.Policy != rt.EDF {
		t.Errorf("%+v, %v", core, err)
	}
}

// What a node publishes is what the others read.
func TestCoresSurviveTheWayThroughADevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backend := rapid.SampledFrom([]string{"simulated", "hcbs", "rtgroup", "fifo", "deadline", "cfs"}).Draw(t, "backend")
		core := rt.Core{
			ID: rapid.IntRange(0, 1023).Draw(t, "id"), NUMA: rapid.IntRange(0, 7).Draw(t, "numa"),
			Sibling:           rapid.IntRange(rt.NoSibling, 1023).Draw(t, "sibling"),
			Capacity:          rt.PPM(rapid.Int64Range(0, 900_000).Draw(t, "capacity")),
			EscalationReserve: rt.PPM(rapid.Int64Range(0, 500_000).Draw(t, "reserve")),
			Granularity:       rapid.Int64Range(0, 10_000).Draw(t, "granularity"),
			Policy:            rt.PolicyOf(backend),
		}
		device := rtdra.Device(core, backend)
		back, err := rtdra.CoreOf(device)
		if err != nil || !reflect.DeepEqual(back, core) || rtdra.BackendOf(device) != backend {
			t.Fatalf("%+v became %+v, %v", core, back, err)
		}
	})
}

// The scheduler adds up what claims ask for; the sum must be the admission test.
func TestClaimsThatFitTogetherPassTheAdmissionTest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := rt.Core{
			ID: 3, Sibling: rt.NoSibling, Capacity: 900_000, Granularity: rapid.Int64Range(0, 200).Draw(t, "granularity"),
			EscalationReserve: rt.PPM(rapid.SampledFrom([]int64{0, 150_000}).Draw(t, "reserve")),
		}
		var placed []rt.Server
		sum := int64(0)
		for i := range rapid.IntRange(1, 8).Draw(t, "n") {
			m := drawMcKube(t)
			spec, err := rtdra.ClaimSpec(m, granularity)
			if err != nil {
				t.Fatal(err)
			}
			ppm, matches := asked(t, spec, core)
			if last := len(ppm) - 1; !matches[last] || sum+ppm[last] > int64(core.Capacity) {
				continue
			} else {
				sum += ppm[last]
			}
			server, err := rtdra.ServerOf(m, "pod", string(rune('a'+i)))
			if err != nil {
				t.Fatal(err)
			}
			if v := rt.Admit(core, placed, server); !v.Admitted {
				t.Fatalf("the scheduler takes it, the test does not: %s", v)
			}
			placed = append(placed, server)
		}
	})
}

func drawMcKube(t *rapid.T) *mcv1.McKube {
	period := rapid.Int64Range(1_000, 1_000_000).Draw(t, "period")
	hi := rapid.Int64Range(2, period*95/100).Draw(t, "hi")
	settings := mcv1.RTSettings{Period: period, RuntimeHi: hi, RuntimeLow: rapid.Int64Range(1, hi).Draw(t, "low")}
	if rapid.Bool().Draw(t, "constrained") {
		settings.Deadline = ptr.To(rapid.Int64Range(hi, period).Draw(t, "deadline"))
	}
	if cores := rapid.SampledFrom([]string{"", "3", "0-1,3"}).Draw(t, "cores"); cores != "" {
		settings.Core = ptr.To(cores)
	}
	m := mckube("m", settings)
	m.Spec.Criticality = mcv1.Criticality(rapid.SampledFrom([]string{"High", "middle", "LOW", ""}).Draw(t, "criticality"))
	if rapid.Bool().Draw(t, "limited") {
		limited(m)
	}
	return m
}

func TestNamesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		container := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`).Draw(t, "container")
		if problems := validation.IsDNS1123Label(rtdra.ClaimName(container)); len(problems) > 0 {
			t.Fatalf("claim of %q: %v", container, problems)
		}
		label := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?`)
		name := strings.Join(rapid.SliceOfN(label, 1, 11).Draw(t, "name"), ".")
		template, err := rtdra.TemplateName(mckube(name, mcv1.RTSettings{Period: 1000, RuntimeLow: 1, RuntimeHi: 2}), granularity)
		if problems := validation.IsDNS1123Subdomain(template); err != nil || len(problems) > 0 {
			t.Fatalf("template of %q: %v %v", name, problems, err)
		}
	})
	long := strings.Repeat("a", 62)
	if rtdra.ClaimName(long+"b") == rtdra.ClaimName(long+"c") {
		t.Error("two long container names have one claim")
	}
}
