package catalogue_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func load(t *testing.T) *catalogue.Catalogue {
	t.Helper()
	c, err := catalogue.Load("")
	if err != nil {
		t.Fatalf("loading the embedded catalogue: %v", err)
	}
	return c
}

func TestEmbeddedCatalogueLoads(t *testing.T) {
	c := load(t)
	if n := len(c.InstanceTypes); n < 55 || n > 75 {
		t.Errorf("%d instance types; about 60 are meant", n)
	}
	used := map[string]bool{}
	for _, it := range c.InstanceTypes {
		used[it.Price.Source], used[it.Watts.Source] = true, true
		if it.Reserved != nil {
			used[it.Reserved.Source] = true
		}
		if it.RT != nil {
			used[it.RT.Source] = true
		}
		if got, ok := c.Lookup(it.Name); !ok || got != it {
			t.Errorf("Lookup(%q) does not find the entry", it.Name)
		}
	}
	for source := range c.Sources {
		if !used[source] {
			t.Errorf("source %q is named by no entry", source)
		}
	}
}

// The general machines are those of Karpenter's kwok provider, at its prices, so that NodePools and
// expectations written for it hold.
func TestGeneralMachinesHaveKwokPrices(t *testing.T) {
	for _, it := range load(t).InstanceTypes {
		if it.Class != catalogue.General {
			continue
		}
		want := 0.025*float64(it.CPU) + 0.001*float64(it.MemoryGiB<<30)/1e9
		if diff := it.Price.OnDemand - want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s: on-demand %v, want %v", it.Name, it.Price.OnDemand, want)
		}
		if diff := it.Price.Spot - 0.7*want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s: spot %v, want %v", it.Name, it.Price.Spot, 0.7*want)
		}
	}
}

func TestEdgeMachinesDescribeTheirCores(t *testing.T) {
	for _, it := range load(t).InstanceTypes {
		if (it.Class == catalogue.Edge) != (it.RT != nil) {
			t.Errorf("%s: class %s, rt %v", it.Name, it.Class, it.RT)
		}
	}
}

func TestCores(t *testing.T) {
	layout := &catalogue.RT{NUMANodes: 2, CoresPerNUMA: 2, SMT: true, Housekeeping: []int{0, 4}, BandwidthPPM: 950_000}
	want := []rt.Core{
		{ID: 1, NUMA: 0, Sibling: 5, Capacity: 900_000, Granularity: 100},
		{ID: 2, NUMA: 1, Sibling: 6, Capacity: 900_000, Granularity: 100},
		{ID: 3, NUMA: 1, Sibling: 7, Capacity: 900_000, Granularity: 100},
		{ID: 5, NUMA: 0, Sibling: 1, Capacity: 900_000, Granularity: 100},
		{ID: 6, NUMA: 1, Sibling: 2, Capacity: 900_000, Granularity: 100},
		{ID: 7, NUMA: 1, Sibling: 3, Capacity: 900_000, Granularity: 100},
	}
	got := layout.Cores()
	if len(got) != len(want) {
		t.Fatalf("cores %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("core %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	single := &catalogue.RT{NUMANodes: 1, CoresPerNUMA: 2, Housekeeping: []int{0}, BandwidthPPM: 1}
	if got := single.Cores(); len(got) != 1 || got[0] != (rt.Core{ID: 1, Sibling: -1, Capacity: 1, Granularity: 100}) {
		t.Errorf("cores without SMT: %+v", got)
	}
}

func TestCoresKeepTheEscalationReserve(t *testing.T) {
	layout := catalogue.RT{NUMANodes: 1, CoresPerNUMA: 3, Housekeeping: []int{0}, BandwidthPPM: 800_000, GranularityUs: 50, EscalationReservePPM: 300_000}
	if got := layout.Cores(); got[0].Capacity != 500_000 || got[0].EscalationReserve != 300_000 || got[1].EscalationReserve != 300_000 || got[0].Granularity != 50 {
		t.Errorf("all cores keep it: %+v", got)
	}
	layout.EscalationCores = []int{2}
	if got := layout.Cores(); got[0].Capacity != 800_000 || got[0].EscalationReserve != 0 || got[1].Capacity != 500_000 {
		t.Errorf("core 2 keeps it: %+v", got)
	}
}

const valid = `
sources: {s: somewhere}
zones: [z1, z2]
instanceTypes:
- name: box
  class: edge
  family: f
  architecture: amd64
  cpu: 4
  memoryGiB: 8
  pods: 10
  ephemeralGiB: 20
  gpus: {resource: nvidia.com/gpu, model: T4, count: 1}
  rt: {numaNodes: 1, coresPerNuma: 2, smt: true, housekeeping: [0, 2], bandwidthPpm: 950000, source: s}
  price: {onDemand: 1, spot: 0.5, source: s}
  watts: {idle: 10, max: 20, devices: {idle: 4, max: 12}, source: s}
  reserved: {price: 0.5, count: 2, zone: z1, source: s}
`

// Watts of accelerators are known apart, and hosts of one formula draw the same with and without them.
func TestHostsDrawWhatTheirFormulaSays(t *testing.T) {
	for _, it := range load(t).InstanceTypes {
		m, known := it.Watts.Machine()
		if !known {
			t.Errorf("%s: watts %+v are those of no machine", it.Name, it.Watts)
		}
		if it.Class != catalogue.GPU && it.Class != catalogue.NPU {
			continue
		}
		// ccf-amd64: 0.74 and 3.5 W per vCPU, 0.392 W per GiB.
		memory := 0.392 * float64(it.MemoryGiB)
		idle, loaded := 0.74*float64(it.CPU)+memory, 3.5*float64(it.CPU)+memory
		if math.Abs(m.Host.Idle-idle) > 0.01 || math.Abs(m.Host.Max-loaded) > 0.01 {
			t.Errorf("%s: the host draws %v, want %v to %v", it.Name, m.Host, idle, loaded)
		}
	}
}

func TestParse(t *testing.T) {
	c, err := catalogue.Parse("test", []byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.InstanceTypes[0].Zones; len(got) != 2 {
		t.Errorf("zones %v, want those of the file", got)
	}
	if got := c.InstanceTypes[0].ReservationID(); got != "box.z1" {
		t.Errorf("reservation id %q", got)
	}
}

// Every refusal names the entry, the field, the value and what would be right.
func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, old, new string
		want           []string
	}{
		{"unknown field", "cpu: 4", "cpus: 4", []string{`instanceTypes[0] "box"`, `"cpus"`}},
		{"unknown top field", "zones:", "regions:", []string{`"regions"`, "sources, zones and instanceTypes"}},
		{"duplicate key", "cpu: 4", "cpu: 4\n  cpu: 5", []string{"cpu"}},
		{"wrong type", "cpu: 4", "cpu: four", []string{`"box"`, "cpu", "string"}},
		{"bad name", "name: box", "name: a/b", []string{"name", `"a/b"`, "label value"}},
		{"no name", "name: box", "name: ''", []string{"instanceTypes[0]: name is empty", "required"}},
		{"class", "class: edge", "class: big", []string{"class", `"big"`, "general, gpu, npu, edge"}},
		{"architecture", "architecture: amd64", "architecture: mips", []string{"architecture", `"mips"`, "amd64, arm64"}},
		{"cpu", "cpu: 4", "cpu: 0", []string{"cpu is 0", "at least 1", "rt describes 4"}},
		{"memory", "memoryGiB: 8", "memoryGiB: -1", []string{"memoryGiB is -1", "at least 1"}},
		{"price", "onDemand: 1", "onDemand: 0", []string{"price is 0", "above 0"}},
		{"spot", "spot: 0.5", "spot: -1", []string{"price.spot is -1", "left out"}},
		{"price source", "spot: 0.5, source: s", "spot: 0.5, source: hearsay", []string{"price.source", `"hearsay"`, "key of sources"}},
		{"watts", "idle: 10", "idle: 30", []string{"watts.max is 20", "watts.idle, 30"}},
		{"devices idle", "devices: {idle: 4", "devices: {idle: 11", []string{"watts.devices.idle is 11", "from 0 to watts.idle, 10"}},
		{"devices below zero", "devices: {idle: 4", "devices: {idle: -4", []string{"watts.devices.idle is -4"}},
		{"devices max", "max: 12}", "max: 3}", []string{"watts.devices.max is 3", "watts.devices.idle, 4"}},
		{"devices leave the host too little", "max: 12}", "max: 15}", []string{"watts.devices.max is 15", "at most 14"}},
		{"devices of none", "gpus: {resource: nvidia.com/gpu, model: T4, count: 1}", "", []string{"watts.devices is given without gpus or npus"}},
		{"idle", "idle: 10", "idle: 0", []string{"watts.idle is 0", "above 0"}},
		{"gpu resource", "nvidia.com/gpu", "gpu", []string{"gpus.resource", `"gpu"`, "<domain>/<name>"}},
		{"gpu count", "count: 1", "count: 0", []string{"gpus.count is 0"}},
		{"zones", "zones: [z1, z2]", "zones: []", []string{"zones is empty"}},
		{"zone twice", "zones: [z1, z2]", "zones: [z1, z1]", []string{"zones[1]", `"z1"`, "twice"}},
		{"reserved zone", "zone: z1", "zone: z9", []string{"reserved.zone", `"z9"`, "z1, z2"}},
		{"rt size", "coresPerNuma: 2", "coresPerNuma: 3", []string{"rt describes 6", "cpu, 4"}},
		{"rt housekeeping range", "[0, 2]", "[0, 2, 9]", []string{"rt.housekeeping[2] is 9", "0 to 3"}},
		{"rt sibling", "[0, 2]", "[0]", []string{"housekeeping[0] is 0", "sibling 2"}},
		{"rt all", "[0, 2]", "[0, 1, 2, 3]", []string{"holds every CPU"}},
		{"rt none", "[0, 2]", "[]", []string{"rt.housekeeping is empty"}},
		{"rt granularity", "950000", "950000, granularityUs: 20000", []string{"rt.granularityUs is 20000", "1 to 10000"}},
		{"rt reserve", "950000", "950000, escalationReservePpm: 900000", []string{"rt.escalationReservePpm is 900000", "less than 900000"}},
		{"rt reserve without size", "950000", "950000, escalationCores: [1]", []string{"rt.escalationCores", "rt.escalationReservePpm"}},
		{"rt reserve on a kept CPU", "950000", "950000, escalationReservePpm: 1, escalationCores: [2]", []string{"rt.escalationCores[0] is 2", "rt.housekeeping"}},
		{"rt reserve nowhere", "950000", "950000, escalationReservePpm: 1, escalationCores: [4]", []string{"rt.escalationCores[0] is 4", "0 to 3"}},
		{"rt reserve twice", "950000", "950000, escalationReservePpm: 1, escalationCores: [1, 1]", []string{"rt.escalationCores[1] is 1", "twice"}},
		{"rt bandwidth", "950000", "9500000", []string{"rt.bandwidthPpm is 9500000", "1000000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := strings.Replace(valid, tc.old, tc.new, 1)
			if text == valid {
				t.Fatalf("%q is not in the example", tc.old)
			}
			_, err := catalogue.Parse("my.yaml", []byte(text))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range append(tc.want, "my.yaml") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestParseRefusesDuplicates(t *testing.T) {
	entry := valid[strings.Index(valid, "- name"):]
	_, err := catalogue.Parse("my.yaml", []byte(valid+entry))
	if err == nil || !strings.Contains(err.Error(), `instanceTypes[1] "box": name: instanceTypes[0] has the same`) {
		t.Errorf("error %v", err)
	}
}

func TestParseRefusesAnEmptyCatalogue(t *testing.T) {
	_, err := catalogue.Parse("my.yaml", []byte("instanceTypes: []"))
	if err == nil || !strings.Contains(err.Error(), "instanceTypes is empty; at least one entry is needed") {
		t.Errorf("error %v", err)
	}
}

func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if _, err := catalogue.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: error %v does not name it", err)
	}
	if err := os.WriteFile(path, []byte(valid), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := catalogue.Load(path); err != nil {
		t.Error(err)
	}
}
