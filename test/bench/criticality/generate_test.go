package main

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

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

func allUsable(servers []rt.Server) bool {
	return !slices.ContainsFunc(servers, func(s rt.Server) bool { return !usable(s) })
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
	core := rt.Core{Capacity: rt.MaxCapacity, Granularity: 100, Policy: rt.EDF}
	for _, k := range kinds {
		s, err := densest(k, core, 1)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := densest(k, core, 1); !reflect.DeepEqual(again, s) {
			t.Errorf("%s: the same seed gave another set", k.name)
		}
		if !rt.Holds(core, s.servers).Admitted || !allUsable(s.servers) {
			t.Errorf("%s: %+v is not admitted", k.name, s.servers)
		}
		counts := map[rt.Criticality]int{}
		for _, server := range s.servers {
			counts[server.Criticality]++
			if d := demand(server); d.Validate() != nil || d.Most >= server.Low*1000 || d.OverrunTo >= server.High*1000 {
				t.Errorf("%s: jobs %+v of %+v", k.name, d, server)
			}
		}
		if counts[rt.High] != 2 || counts[rt.Middle] != 3 || counts[rt.Low] != 4 {
			t.Errorf("%s: the mix is %v", k.name, counts)
		}
		t.Logf("%s: %.1f %% after %d sets, %s", k.name, 100*s.total, s.drawn, s.verdict)
	}
}
