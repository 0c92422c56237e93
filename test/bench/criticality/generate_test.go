package main

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestRandFixedSumKeepsSumAndBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		least := rapid.Float64Range(0, 0.1).Draw(t, "least")
		most := least + rapid.Float64Range(0.05, 1).Draw(t, "span")
		total := rapid.Float64Range(float64(n)*least, float64(n)*most).Draw(t, "total")
		seed := rapid.Uint64().Draw(t, "seed")
		values := randFixedSum(rand.New(rand.NewPCG(seed, 1)), n, total, least, most)
		sum := 0.0
		for _, v := range values {
			sum += v
			if v < least-1e-9 || v > most+1e-9 {
				t.Fatalf("%v is outside %v to %v", v, least, most)
			}
		}
		if math.Abs(sum-total) > 1e-9*float64(n) {
			t.Fatalf("the sum of %v is %v; want %v", values, sum, total)
		}
		if !slices.Equal(values, randFixedSum(rand.New(rand.NewPCG(seed, 1)), n, total, least, most)) {
			t.Fatal("the same seed gave other values")
		}
	})
}

// Every value has the same mean, the sum's share; and half of a sum of 1 of two is uniform.
func TestRandFixedSumIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rounds, n = 20_000, 4
	mean, below := [n]float64{}, 0
	for range rounds {
		for i, v := range randFixedSum(r, n, 1.5, 0, 1) {
			mean[i] += v / rounds
		}
		if randFixedSum(r, 2, 1, 0, 1)[0] < 0.25 {
			below++
		}
	}
	for i, m := range mean {
		if math.Abs(m-1.5/n) > 0.01 {
			t.Errorf("value %d has mean %v; want %v", i, m, 1.5/n)
		}
	}
	if share := float64(below) / rounds; math.Abs(share-0.25) > 0.02 {
		t.Errorf("of two with sum 1, %v are below 0.25; want a quarter", share)
	}
}

func TestDensestIsAdmittedAndRepeatable(t *testing.T) {
	core := rt.Core{Capacity: rt.MaxCapacity, Granularity: granularityUs, Policy: rt.FixedPriority}
	for _, k := range kinds {
		s, err := densest(k, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := densest(k, 1, 1); !reflect.DeepEqual(again.servers, s.servers) {
			t.Errorf("%s: the same seed gave another set", k.name)
		}
		if !rt.Holds(core, s.servers).Admitted || s.total < 0.8 || s.total > 0.95 {
			t.Errorf("%s: %+v with %.2f of the core is not admitted at 80 to 95 %%", k.name, s.servers, s.total)
		}
		if plan := rt.PlanCore(core, s.servers); (len(plan.Squeeze) > 0) != k.squeezes {
			t.Errorf("%s: the plan squeezes %v", k.name, plan.Squeeze)
		}
		if fits := rt.T1(core, s.servers).Admitted; fits == k.squeezes {
			t.Errorf("%s: high budgets fit: %v", k.name, fits)
		}
		checkMix(t, s)
		t.Logf("%s: %.1f %% after %d sets", k.name, 100*s.total, s.drawn)
	}
}

// checkMix checks who is in a set, and that every job fits into its budget.
func checkMix(t *testing.T, s set) {
	t.Helper()
	counts, long := map[rt.Criticality]int{}, 0
	for _, server := range s.servers {
		counts[server.Criticality]++
		if server.Period == longUs {
			long++
		}
		d := s.demand(server)
		if d.Validate() != nil || d.Most >= server.Low*1000 || d.OverrunTo >= server.High*1000 || !usable(server) {
			t.Errorf("%s: jobs %+v of %+v", s.kind.name, d, server)
		}
	}
	if counts[rt.High] != 2 || counts[rt.Middle] != 3 || counts[rt.Low] != 4 || long != 1 {
		t.Errorf("%s: the mix is %v, %d with the long period", s.kind.name, counts, long)
	}
}

func node(backend string, granularityUs int64) table.Report {
	return table.Report{Backend: backend, GranularityUs: granularityUs, Cores: []table.CoreReport{{ID: 1, CapacityPpm: 900_000}}}
}

func TestAdmissionIsTheBackendsOwn(t *testing.T) {
	sets := map[string]set{}
	for _, k := range kinds {
		s, err := densest(k, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		sets[k.name] = s
	}
	for _, c := range []struct {
		backend      string
		granularity  int64
		set          string
		own, charged bool
		us           int64
	}{
		{"fifo", 80, "randfixedsum", true, true, 80}, {"fifo", 80, squeeze, true, true, 80},
		{"fifo", 300, "waters", true, true, granularityUs}, // only if Low ones give way
		{"rtgroup", 4000, "waters", false, true, granularityUs}, {"rtgroup", 4000, squeeze, false, true, granularityUs},
		{"deadline", 4000, "randfixedsum", false, true, granularityUs}, {"deadline", 100, squeeze, false, false, granularityUs},
	} {
		a := sets[c.set].judge(node(c.backend, c.granularity), 1)
		if a.own.Admitted != c.own || a.charged.Admitted != c.charged {
			t.Errorf("%s at %d us, %s: %s", c.backend, c.granularity, c.set, a)
		}
		r := result{node: node(c.backend, c.granularity), admissions: map[string]admission{c.set: a}}
		us, admitted := r.charge(sets[c.set])
		if admitted != c.charged || us != c.us {
			t.Errorf("%s at %d us, %s: %d us are charged, admitted %v", c.backend, c.granularity, c.set, us, admitted)
		}
	}
}

func TestScaleToAdmit(t *testing.T) {
	var sets []set
	for _, k := range kinds {
		s, err := densest(k, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, s)
	}
	if f := (result{node: node("fifo", 80), sets: sets}).scaleToAdmit(); f.Value != 1 {
		t.Errorf("got %+v; want 1 where the sets are admitted as they are", f)
	}
	f := result{node: node("rtgroup", 4000), sets: sets}.scaleToAdmit()
	if f.Value < 2 {
		t.Fatalf("got %+v with a tick", f)
	}
	for _, s := range sets[:2] {
		larger := made(s.kind, s.seed, int64(f.Value), s.drawn, slices.Clone(s.servers))
		if a := larger.judge(node("rtgroup", 4000), 1); !a.own.Admitted {
			t.Errorf("%s is not admitted at scale %v: %s", s.kind.name, f.Value, a)
		}
	}
}
