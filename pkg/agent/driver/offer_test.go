package driver_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// machine has n online cores, two threads to a hardware core, four to a NUMA node.
func machine(n int) []host.Core {
	out := make([]host.Core, n)
	for id := range out {
		out[id] = host.Core{ID: id, NUMA: id / 4, Sibling: id ^ 1, Online: true}
	}
	return out
}

func report(backend string, capacity int64, cores ...int) table.Report {
	r := table.Report{Backend: backend, GranularityUs: 60}
	for _, id := range cores {
		r.Cores = append(r.Cores, table.CoreReport{ID: id, CapacityPpm: capacity})
	}
	return r
}

func TestOfferIsWhatTheFastPathGoverns(t *testing.T) {
	cores := machine(6)
	cores[3].Online = false
	r := report("rtgroup", 300_000, 5, 2, 3)
	r.Cores = append(r.Cores, table.CoreReport{ID: 1, CapacityPpm: 50_000}, table.CoreReport{ID: 9, CapacityPpm: 1})
	offer, err := driver.OfferOf(r, cores, 50_000)
	if err != nil {
		t.Fatal(err)
	}
	want := []rt.Core{
		{ID: 2, NUMA: 0, Sibling: rt.NoSibling, Capacity: 250_000, EscalationReserve: 50_000, Granularity: 60, Policy: rt.FixedPriority},
		{ID: 5, NUMA: 1, Sibling: 4, Capacity: 250_000, EscalationReserve: 50_000, Granularity: 60, Policy: rt.FixedPriority},
	}
	if len(offer.Cores) != 2 || offer.Cores[0] != want[0] || offer.Cores[1] != want[1] {
		t.Errorf("cores %+v, want %+v", offer.Cores, want)
	}
	for core, why := range map[int]string{3: "offline", 1: "--escalation-reserve-ppm", 9: "no such core"} {
		if !strings.Contains(offer.Unfit[core], why) {
			t.Errorf("core %d: %q, want %q", core, offer.Unfit[core], why)
		}
	}
	for i, d := range offer.Devices() {
		if back, err := rtdra.CoreOf(d); err != nil || back != want[i] || rtdra.BackendOf(d) != "rtgroup" {
			t.Errorf("device %+v is read as %+v, %v", d, back, err)
		}
	}
}

// A reserve is a promise to Limited servers. Where it cannot be kept the whole capacity is offered, and none of those comes.
func TestAReserveIsOfferedWhereItCanBeKept(t *testing.T) {
	limited := rt.Server{ID: "l", Criticality: rt.High, Period: 10_000, Deadline: 10_000, Low: 1_000, High: 1_400, Limited: true}
	for backend, keeps := range map[string]bool{"rtgroup": true, "fifo": true, "cfs": true, "deadline": false, "hcbs": false} {
		offer, err := driver.OfferOf(report(backend, 300_000, 1), machine(2), 50_000)
		if err != nil || len(offer.Cores) != 1 {
			t.Fatalf("%s: %+v, %v", backend, offer, err)
		}
		want := rt.PPM(0)
		if keeps {
			want = 50_000
		}
		core := offer.Cores[0]
		if core.EscalationReserve != want || core.Capacity+want != 300_000 {
			t.Errorf("%s: reserve %d of %d ppm, want %d", backend, core.EscalationReserve, core.Capacity, want)
		}
		if v := rt.Admit(core, nil, limited); v.Admitted != keeps {
			t.Errorf("%s: %+v; want a Limited server admitted: %v", backend, v, keeps)
		}
	}
}

func TestCoresWithoutEnforcementAreUnfit(t *testing.T) {
	r := report("rtgroup", 0, 1, 2)
	r.Unenforced = "throttling is off"
	offer, err := driver.OfferOf(r, machine(6), 0)
	if err != nil || len(offer.Cores) > 0 || offer.Unfit[1] != r.Unenforced || offer.Unfit[2] != r.Unenforced {
		t.Errorf("offered %+v, unfit %v, %v; want none, and why", offer.Cores, offer.Unfit, err)
	}
}

func TestNothingIsOffered(t *testing.T) {
	for name, tc := range map[string]struct {
		report table.Report
		err    string
	}{
		"blocked":           {report("blocked", 900_000, 1), ""},
		"no backend yet":    {report("", 900_000, 1), ""},
		"no cores":          {report("fifo", 900_000), ""},
		"every online core": {report("fifo", 900_000, 0, 1), "all 2 online cores are given to real-time work; keep at least one for the host, by --reserved-cores"},
	} {
		offer, err := driver.OfferOf(tc.report, machine(2), 0)
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: error %v, want %q", name, err, tc.err)
		}
		if len(offer.Devices()) != 0 {
			t.Errorf("%s: offered %+v", name, offer.Cores)
		}
	}
}

// Whatever is reported: no core is offered that is offline, unknown or beyond the cap, and one is left.
func TestOffersAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cores := machine(rapid.IntRange(1, 8).Draw(t, "n"))
		for i := range cores {
			cores[i].Online = rapid.Bool().Draw(t, "online")
		}
		ids := rapid.SliceOfDistinct(rapid.IntRange(0, 9), rapid.ID).Draw(t, "governed")
		r := report("fifo", rapid.Int64Range(-1, 2_000_000).Draw(t, "capacity"), ids...)
		reserve := rt.PPM(rapid.Int64Range(0, 500_000).Draw(t, "reserve"))
		offer, err := driver.OfferOf(r, cores, reserve)
		if err != nil && len(offer.Cores) > 0 {
			t.Fatalf("%v, and still %+v", err, offer.Cores)
		}
		online := host.Topology{Cores: cores}.Online()
		if len(online) > 0 && len(offer.Cores) >= len(online) {
			t.Fatalf("the host keeps no core: %+v", offer.Cores)
		}
		for _, c := range offer.Cores {
			if c.ID >= len(cores) || !cores[c.ID].Online || c.Capacity <= 0 || c.Capacity+c.EscalationReserve > rt.MaxCapacity {
				t.Fatalf("offered %+v", c)
			}
		}
	})
}
