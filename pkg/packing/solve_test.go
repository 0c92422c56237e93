package packing_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/packing"
)

func TestSolve(t *testing.T) {
	t.Parallel()
	small, large := packing.Type{Cost: 1, Capacity: []float64{4, 8}}, packing.Type{Cost: 1.5, Capacity: []float64{8, 16}}
	for name, c := range map[string]struct {
		types  []packing.Type
		groups []packing.Group
		want   float64
	}{
		"nothing":                     {[]packing.Type{small}, nil, 0},
		"pods that request nothing":   {[]packing.Type{small}, []packing.Group{{Requests: []float64{0, 0}, Count: 3}}, 0},
		"one pod":                     {[]packing.Type{small, large}, []packing.Group{{Requests: []float64{3, 1}, Count: 1}}, 1},
		"whole pods":                  {[]packing.Type{small}, []packing.Group{{Requests: []float64{3, 1}, Count: 3}}, 3},
		"two on the large one":        {[]packing.Type{small, large}, []packing.Group{{Requests: []float64{3, 1}, Count: 2}}, 1.5},
		"odd one out on a small one":  {[]packing.Type{small, large}, []packing.Group{{Requests: []float64{3, 1}, Count: 3}}, 2.5},
		"sizes that complement":       {[]packing.Type{small}, []packing.Group{{Requests: []float64{3, 1}, Count: 2}, {Requests: []float64{1, 7}, Count: 2}}, 2},
		"a type that a group may not": {[]packing.Type{small, large}, []packing.Group{{Requests: []float64{3, 1}, Count: 2, Types: []int{0}}}, 2},
		"groups kept apart":           {[]packing.Type{small, {Cost: 1, Capacity: []float64{4, 8}}}, []packing.Group{{Requests: []float64{1, 1}, Count: 1, Types: []int{0}}, {Requests: []float64{1, 1}, Count: 1, Types: []int{1}}}, 2},
		"40 whole pods":               {[]packing.Type{small}, []packing.Group{{Requests: []float64{3, 1}, Count: 40}}, 40},
		"as many as fit by rounding":  {[]packing.Type{{Cost: 1, Capacity: []float64{1, 1}}}, []packing.Group{{Requests: []float64{0.1, 0.1}, Count: 10}}, 1},
	} {
		got, err := packing.Solve(t.Context(), c.types, c.groups)
		if err != nil || math.Abs(got.Cost-c.want) > 1e-6 || math.Abs(got.Bound-c.want) > 1e-6 || c.want > 0 && !got.Exact() {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := packing.Solve(t.Context(), []packing.Type{small}, []packing.Group{{Requests: []float64{1, 1}, Count: 1}, {Requests: []float64{5, 1}, Count: 1}}); !errors.Is(err, packing.ErrUnplaceable) || err.Error() != "group 1: no machine has it" {
		t.Errorf("a pod that no machine holds: %v", err)
	}
	many := make([]packing.Group, 600)
	for i := range many {
		many[i] = packing.Group{Requests: []float64{1, 1}, Count: 1}
	}
	if _, err := packing.Solve(t.Context(), []packing.Type{small}, many); !errors.As(err, new(*packing.TooManyGroupsError)) {
		t.Errorf("too many groups: %v", err)
	}
}

// instance draws types and groups that fit: each group may run on some types, at least one of which holds a pod.
func instance(t *rapid.T, maxGroups, maxCount int) ([]packing.Type, []packing.Group) {
	const resources = 3
	var types []packing.Type
	for range rapid.IntRange(1, 6).Draw(t, "types") {
		types = append(types, packing.Type{Cost: float64(rapid.IntRange(1, 50).Draw(t, "cost")) / 10, Capacity: []float64{
			float64(rapid.IntRange(1, 16).Draw(t, "cpu")), float64(rapid.IntRange(1, 32).Draw(t, "memory")), float64(rapid.IntRange(0, 4).Draw(t, "gpu")),
		}})
	}
	var groups []packing.Group
	for range rapid.IntRange(1, maxGroups).Draw(t, "groups") {
		home := rapid.IntRange(0, len(types)-1).Draw(t, "type")
		g := packing.Group{Requests: make([]float64, resources), Count: rapid.IntRange(1, maxCount).Draw(t, "count")}
		for r := range g.Requests {
			g.Requests[r] = types[home].Capacity[r] * float64(rapid.IntRange(0, 8).Draw(t, "eighths")) / 8
		}
		if rapid.Bool().Draw(t, "bound") {
			g.Types = []int{home}
			for i := range types {
				if i != home && rapid.Bool().Draw(t, "also") {
					g.Types = append(g.Types, i)
				}
			}
		}
		groups = append(groups, g)
	}
	return types, groups
}

// The exact solution lies between the bounds of the linear program, and is that of trying every assignment.
func TestBoundsHoldTheCheapestPacking(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		types, groups := instance(t, 3, 2)
		exact, err := packing.Solve(context.Background(), types, groups)
		if err != nil {
			t.Fatal(err)
		}
		if want := enumerate(types, groups); math.Abs(exact.Cost-want) > 1e-6 {
			t.Fatalf("exact %v, by enumeration %v: %v %v", exact.Cost, want, types, groups)
		}
		large, err := packing.SolveLarge(context.Background(), types, groups)
		if err != nil || large.Bound > exact.Cost*(1+1e-9) || large.Cost < exact.Cost*(1-1e-9) {
			t.Fatalf("linear program %+v (%v), exact %v: %v %v", large, err, exact.Cost, types, groups)
		}
	})
}

// enumerate tries every way to put pods into machines: each into one that is open, or into a new one of each type.
func enumerate(types []packing.Type, groups []packing.Group) float64 {
	var pods []packing.Group
	for _, g := range groups {
		for range g.Count {
			pods = append(pods, g)
		}
	}
	type machine struct {
		kind int
		left []float64
	}
	best := math.Inf(1)
	var try func(i int, open []machine, cost float64)
	try = func(i int, open []machine, cost float64) {
		if cost >= best {
			return
		}
		if i == len(pods) {
			best = cost
			return
		}
		p := pods[i]
		if !slices.ContainsFunc(p.Requests, func(x float64) bool { return x > 0 }) {
			try(i+1, open, cost)
			return
		}
		may := func(kind int) bool { return p.Types == nil || slices.Contains(p.Types, kind) }
		for m := range open {
			if may(open[m].kind) && fits(p.Requests, open[m].left) {
				take(p.Requests, open[m].left)
				try(i+1, open, cost)
				take([]float64{-p.Requests[0], -p.Requests[1], -p.Requests[2]}, open[m].left)
			}
		}
		for kind, k := range types {
			if may(kind) && fits(p.Requests, k.Capacity) {
				left := slices.Clone(k.Capacity)
				take(p.Requests, left)
				try(i+1, append(slices.Clone(open), machine{kind, left}), cost+k.Cost)
			}
		}
	}
	try(0, nil, 0)
	return best
}

// The bound of many pods is never above a packing, and not below the one that divides pods, where all may run everywhere.
func TestTheLinearProgramIsSharperThanDividedPods(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		types, groups := instance(t, 12, 60)
		demand := make([]float64, 3)
		for i := range groups {
			groups[i].Types = nil
			for r, x := range groups[i].Requests {
				demand[r] += x * float64(groups[i].Count)
			}
		}
		got, err := packing.SolveLarge(context.Background(), types, groups)
		if err != nil || got.Bound > got.Cost*(1+1e-9) {
			t.Fatalf("%+v, %v", got, err)
		}
		divided, err := packing.Bound(types, demand)
		if err != nil || got.Bound < divided*(1-1e-5) {
			t.Fatalf("bound %v, with divided pods %v (%v): %v %v", got.Bound, divided, err, types, groups)
		}
		// No packing of one more pod costs less than the bound of the others. Its own bound may: searches that are cut short prove less.
		groups[0].Count++
		if more, err := packing.SolveLarge(context.Background(), types, groups); err != nil || more.Cost < got.Bound*(1-1e-9) {
			t.Fatalf("bound %v, with one more pod %+v (%v)", got.Bound, more, err)
		}
	})
}

func TestAContextThatEndsLeavesAValidBound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	types, groups := randomInstance(40, 30, 1)
	for i := range types { // something that no pod requests
		types[i].Capacity = append(types[i].Capacity, float64(i%2))
	}
	demand := make([]float64, 4)
	for i := range groups {
		groups[i].Requests = append(groups[i].Requests, 0)
		for r, x := range groups[i].Requests {
			demand[r] += x * float64(groups[i].Count)
		}
	}
	divided, err := packing.Bound(types, demand)
	if err != nil {
		t.Fatal(err)
	}
	got, err := packing.Solve(ctx, types, groups)
	if err != nil || got.Bound < divided*(1-1e-6) || got.Bound > got.Cost {
		t.Fatalf("%+v, %v, want at least %v", got, err, divided)
	}
	full, err := packing.Solve(t.Context(), types, groups)
	if err != nil || full.Bound < got.Bound || full.Cost < got.Bound {
		t.Fatalf("%+v, %v; at once %+v", full, err, got)
	}
}

// A knapsack finds the best load, and nothing is worth more than what it says, also where its search is cut short.
func TestKnapsack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := []float64{float64(rapid.IntRange(1, 12).Draw(t, "a")), float64(rapid.IntRange(1, 12).Draw(t, "b"))}
		var groups []packing.Group
		var values []float64
		for range rapid.IntRange(1, 5).Draw(t, "groups") {
			groups = append(groups, packing.Group{Count: rapid.IntRange(1, 3).Draw(t, "count"), Requests: []float64{
				float64(rapid.IntRange(0, 6).Draw(t, "x")), float64(rapid.IntRange(1, 6).Draw(t, "y")),
			}})
			values = append(values, float64(rapid.IntRange(0, 20).Draw(t, "value")))
		}
		var most func(i int, a, b float64) float64
		most = func(i int, a, b float64) float64 {
			if i == len(groups) {
				return 0
			}
			best := 0.0
			for n := 0; n <= groups[i].Count; n++ {
				x, y := a-float64(n)*groups[i].Requests[0], b-float64(n)*groups[i].Requests[1]
				if x >= 0 && y >= 0 {
					best = max(best, float64(n)*values[i]+most(i+1, x, y))
				}
			}
			return best
		}
		want := most(0, capacity[0], capacity[1])
		if value, limit := packing.Knapsack(capacity, values, groups); math.Abs(value-want) > 1e-6 || limit < want-1e-6 {
			t.Fatalf("value %v, limit %v, want %v: %v %v %v", value, limit, want, capacity, groups, values)
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	var groups []packing.Group
	var values []float64
	for range 60 {
		groups = append(groups, packing.Group{Count: 50, Requests: []float64{0.5 + random.Float64(), 0.5 + random.Float64(), 0.5 + random.Float64()}})
		values = append(values, 1+random.Float64()/10)
	}
	if value, limit := packing.Knapsack([]float64{64, 64, 64}, values, groups); value <= 0 || limit <= value {
		t.Errorf("a search that is cut short: value %v, limit %v", value, limit)
	}
}

// randomInstance has so many groups and types, each group of 1 to 40 pods.
func randomInstance(groups, types int, seed uint64) ([]packing.Type, []packing.Group) {
	random := rand.New(rand.NewPCG(seed, 7))
	var kinds []packing.Type
	for range types {
		cpu := math.Pow(2, float64(1+random.IntN(6)))
		perCPU := []float64{2, 4, 8}[random.IntN(3)]
		kinds = append(kinds, packing.Type{Cost: (0.03*cpu + 0.004*cpu*perCPU) * (0.8 + 0.4*random.Float64()), Capacity: []float64{cpu, cpu * perCPU, 110}})
	}
	kinds = append(kinds, packing.Type{Cost: 5, Capacity: []float64{96, 384, 110}})
	var list []packing.Group
	for range groups {
		cpu := []float64{0.1, 0.25, 0.5, 1, 2, 3, 4, 6, 8}[random.IntN(9)]
		list = append(list, packing.Group{Requests: []float64{cpu, cpu * (0.5 + 7*random.Float64()), 1}, Count: 1 + random.IntN(40)})
	}
	return kinds, list
}

func BenchmarkSolve(b *testing.B) {
	for _, size := range []struct{ groups, types int }{{10, 50}, {50, 200}, {200, 800}} {
		types, groups := randomInstance(size.groups, size.types, 3)
		b.Run(fmt.Sprintf("groups=%d/types=%d", size.groups, size.types), func(b *testing.B) {
			gap := 0.0
			for b.Loop() {
				s, err := packing.Solve(b.Context(), types, groups)
				if err != nil {
					b.Fatal(err)
				}
				gap = s.Cost/s.Bound - 1
			}
			b.ReportMetric(gap*100, "gap-%")
		})
	}
}
