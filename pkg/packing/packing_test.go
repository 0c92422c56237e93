package packing_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/packing"
)

func TestBound(t *testing.T) {
	t.Parallel()
	cores := packing.Type{Cost: 1, Capacity: []float64{8, 8, 0}}
	memory := packing.Type{Cost: 1, Capacity: []float64{2, 32, 0}}
	gpu := packing.Type{Cost: 10, Capacity: []float64{8, 32, 1}}
	for name, c := range map[string]struct {
		types  []packing.Type
		demand []float64
		want   float64
	}{
		"nothing":                     {[]packing.Type{cores}, []float64{0, 0, 0}, 0},
		"one resource":                {[]packing.Type{cores}, []float64{12, 0, 0}, 1.5},
		"the scarcer resource counts": {[]packing.Type{cores}, []float64{4, 16, 0}, 2},
		// 8a+2b >= 10, 8a+32b >= 40: a = b = 1.
		"two types together":     {[]packing.Type{cores, memory}, []float64{10, 40, 0}, 2},
		"a GPU brings the rest":  {[]packing.Type{cores, memory, gpu}, []float64{8, 32, 1}, 10},
		"and leaves what it has": {[]packing.Type{cores, gpu}, []float64{16, 40, 1}, 11},
		"useless prices":         {[]packing.Type{{Cost: 0, Capacity: []float64{99, 99, 9}}, {Cost: math.NaN(), Capacity: []float64{99, 99, 9}}, {Cost: -1, Capacity: []float64{99, 99, 9}}, cores}, []float64{8, 8, 0}, 1},
	} {
		got, err := packing.Bound(c.types, c.demand)
		if err != nil || math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := packing.Bound([]packing.Type{cores}, []float64{1, 1, 1}); !errors.Is(err, packing.ErrUnplaceable) {
		t.Errorf("a GPU that no machine has: %v", err)
	}
}

// First fit, on a type drawn for each new machine, never costs less than the bound.
func TestNoPlacementIsCheaperThanTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const resources = 3
		var types []packing.Type
		for range rapid.IntRange(1, 12).Draw(t, "types") {
			types = append(types, packing.Type{Cost: float64(rapid.IntRange(1, 5000).Draw(t, "cost")) / 1000, Capacity: []float64{
				float64(rapid.IntRange(1, 128).Draw(t, "cpu")), float64(rapid.IntRange(1, 512).Draw(t, "memory")), float64(rapid.IntRange(0, 8).Draw(t, "gpu")),
			}})
		}
		demand, cost := make([]float64, resources), 0.0
		var open [][]float64
		for range rapid.IntRange(1, 40).Draw(t, "pods") {
			kind := rapid.SampledFrom(types).Draw(t, "type")
			pod := make([]float64, resources)
			for r := range pod {
				pod[r] = kind.Capacity[r] * float64(rapid.IntRange(0, 100).Draw(t, "share")) / 100
				demand[r] += pod[r]
			}
			placed := false
			for _, left := range open {
				if fits(pod, left) {
					take(pod, left)
					placed = true
					break
				}
			}
			if !placed {
				left := append([]float64{}, kind.Capacity...)
				take(pod, left)
				open, cost = append(open, left), cost+kind.Cost
			}
		}
		bound, err := packing.Bound(types, demand)
		if err != nil || bound > cost*(1+1e-6) {
			t.Fatalf("bound %v (%v), first fit %v: types %v, demand %v", bound, err, cost, types, demand)
		}
		// The units of resources and money do not matter.
		other := make([]packing.Type, len(types))
		for i, k := range types {
			other[i] = packing.Type{Cost: k.Cost * 1000, Capacity: []float64{k.Capacity[0] * 1000, k.Capacity[1] / 1024, k.Capacity[2]}}
		}
		again, err := packing.Bound(other, []float64{demand[0] * 1000, demand[1] / 1024, demand[2]})
		if err != nil || math.Abs(again-1000*bound) > 1e-4*max(1, 1000*bound) {
			t.Fatalf("bound %v, in other units %v", 1000*bound, again)
		}
		// More pods never cost less.
		more, err := packing.Bound(types, []float64{demand[0] + 1, demand[1] + 1, demand[2]})
		if err != nil || more < bound*(1-1e-6) {
			t.Fatalf("bound %v, with more pods %v (%v)", bound, more, err)
		}
	})
}

func fits(pod, left []float64) bool {
	for r := range pod {
		if pod[r] > left[r]+1e-9 {
			return false
		}
	}
	return true
}

func take(pod, left []float64) {
	for r := range pod {
		left[r] -= pod[r]
	}
}

func TestGainIsMonotoneAndFreeOfUnits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bound := float64(rapid.IntRange(1, 1000).Draw(t, "bound"))
		base := bound + float64(rapid.IntRange(0, 1000).Draw(t, "base"))
		a := bound + float64(rapid.IntRange(-10, 2000).Draw(t, "a"))
		b := a + float64(rapid.IntRange(0, 1000).Draw(t, "b"))
		if x, y := packing.Gain(base, a, bound), packing.Gain(base, b, bound); x < y || x < 0 || x > 1 {
			t.Fatalf("gain %v at %v, %v at %v", x, a, y, b)
		}
		if x, y := packing.Gain(base, a, bound), packing.Gain(base*8, a*8, bound*8); x != y {
			t.Fatalf("gain %v, in other units %v", x, y)
		}
		if packing.Gain(base, a, bound) == 1 && a > bound*(1+1e-6) {
			t.Fatalf("gain 1 at %v above the bound %v", a, bound)
		}
	})
	for _, missing := range [][3]float64{{math.NaN(), 1, 1}, {2, math.NaN(), 1}, {2, 1, math.NaN()}} {
		if g := packing.Gain(missing[0], missing[1], missing[2]); g != 0 {
			t.Errorf("gain %v of %v", g, missing)
		}
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gains []float64
		want  float64
	}{{nil, 0}, {[]float64{1, 1, 1}, 1}, {[]float64{1, 0, 1}, 0}, {[]float64{0.25, 1}, 0.5}} {
		if got := packing.Score(c.gains...); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.gains, got, c.want)
		}
	}
}
