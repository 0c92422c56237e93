package repack_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/repack"
)

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestDominantCost(t *testing.T) {
	machines := []repack.Machine{{list("4", "4Gi"), 0.4}, {list("4", "16Gi"), 0.8}}
	for _, test := range []struct {
		name     string
		requests corev1.ResourceList
		want     float64
	}{
		{"by CPU", list("1", "1Mi"), 0.1},
		{"by memory, on the machine that has more", list("1", "8Gi"), 0.4},
		{"too much memory for the cheap machine", list("100m", "5Gi"), 0.25},
		{"for no machine", list("5", "1Gi"), 0},
		{"a resource that none has", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, 0},
		{"nothing", corev1.ResourceList{}, 0},
	} {
		if got := repack.DominantCost(test.requests, machines); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", test.name, got, test.want)
		}
	}
}

func TestOrder(t *testing.T) {
	nodes := []repack.Node{
		{Price: 1, DominantCost: 0.9, Moves: 1}, {Price: 1, DominantCost: 0.1, Moves: 8}, {Price: 1, DominantCost: 0.1, Moves: 2}, {Price: 1, DominantCost: 1.5, Moves: 1},
	}
	if got, want := repack.Order(nodes), []int{2, 1, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// search runs one in which all sets of up to so many nodes may be closed.
func search(ctx context.Context, n, most int, evaluate func(set []int) (repack.Evaluation, error)) ([]int, float64, error) {
	s := repack.Search{Nodes: n, Allowed: func(set []int) bool { return len(set) <= most }, Evaluate: func(_ context.Context, set []int) (repack.Evaluation, error) {
		return evaluate(set)
	}}
	return s.Run(ctx)
}

// Nodes are worth so much each, and stuck those without a worth. Whatever the order, the best set is found.
func TestSearchFindsTheNodesThatPay(t *testing.T) {
	stuck := math.Inf(-1)
	for name, test := range map[string]struct {
		worth []float64
		most  int
		want  []int
	}{
		"one does not pay":                    {[]float64{3, -1, 2, 0}, 9, []int{0, 2}},
		"the first is stuck":                  {[]float64{stuck, 2, 1}, 9, []int{1, 2}},
		"many are stuck":                      {[]float64{stuck, stuck, 1, stuck, stuck, 2, stuck}, 9, []int{2, 5}},
		"a budget of one, and only the last":  {[]float64{-1, stuck, -1, 4}, 1, []int{3}},
		"a budget of two":                     {[]float64{1, stuck, 1, -1, 1}, 2, []int{0, 2}},
		"the first do not pay, many do after": {[]float64{-9, -9, -9, 1, 1, 1, 1, 1, 1}, 9, []int{3, 4, 5, 6, 7, 8}},
		"none pays":                           {[]float64{-1, 0, stuck}, 9, nil},
		"there are none":                      {nil, 9, nil},
	} {
		set, saving, err := search(t.Context(), len(test.worth), test.most, func(set []int) (e repack.Evaluation, err error) {
			for _, i := range set {
				if test.worth[i] == stuck {
					e.Stuck = append(e.Stuck, i)
				}
				e.Saving += test.worth[i]
			}
			return e, nil
		})
		want := 0.0
		for _, i := range test.want {
			want += test.worth[i]
		}
		if err != nil || saving != want || !slices.Equal(set, test.want) {
			t.Errorf("%s: %v saves %g (%v), want %v, which saves %g", name, set, saving, err, test.want, want)
		}
	}
}

// Two nodes save only together.
func TestSearchFindsNodesThatPayTogether(t *testing.T) {
	set, _, err := search(t.Context(), 3, 9, func(set []int) (repack.Evaluation, error) {
		return repack.Evaluation{Saving: []float64{-1, -1, 5, 3}[len(set)]}, nil
	})
	if err != nil || len(set) != 2 {
		t.Errorf("%v, %v; want two nodes", set, err)
	}
}

// Whatever sets save, the result is a set that was evaluated, ascending and allowed, and the best of those; the number of
// evaluations is bounded. When the context ends, also within an evaluation, it is the best by then.
func TestSearchReturnsTheBestThatItEvaluated(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, most := rapid.IntRange(0, 120).Draw(rt, "nodes"), rapid.IntRange(0, 130).Draw(rt, "allowed")
		savings := rapid.SliceOfN(rapid.Float64Range(-5, 5), repack.MaxEvaluations, repack.MaxEvaluations).Draw(rt, "savings")
		stuck := rapid.SliceOfN(rapid.IntRange(0, 4), repack.MaxEvaluations, repack.MaxEvaluations).Draw(rt, "stuck")
		ends := rapid.IntRange(0, repack.MaxEvaluations).Draw(rt, "the evaluation in which the context ends")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		count, best := 0, 0.0
		var seen [][]int
		set, saving, err := search(ctx, n, most, func(set []int) (repack.Evaluation, error) {
			if len(set) == 0 || len(set) > most || set[0] < 0 || set[len(set)-1] >= n || !slices.IsSorted(set) || len(slices.Compact(slices.Clone(set))) != len(set) {
				rt.Fatalf("evaluates %v of %d nodes, %d at once", set, n, most)
			}
			if count++; count > repack.MaxEvaluations {
				rt.Fatalf("%d evaluations", count)
			}
			if count == ends {
				cancel()
				return repack.Evaluation{}, ctx.Err()
			}
			if i := stuck[count-1]; i < len(set) && stuck[count-1] > 1 {
				return repack.Evaluation{Stuck: set[:i]}, nil
			}
			best = max(best, savings[count-1])
			seen = append(seen, slices.Clone(set))
			return repack.Evaluation{Saving: savings[count-1]}, nil
		})
		if err != nil || saving != best {
			rt.Fatalf("saves %g (%v), and %g was seen", saving, err, best)
		}
		if (len(set) == 0) != (best == 0) || len(set) > 0 && !slices.ContainsFunc(seen, func(o []int) bool { return slices.Equal(o, set) }) {
			rt.Fatalf("%v saves %g", set, saving)
		}
		if ends > 0 && count > ends {
			rt.Fatalf("%d evaluations, and the context ended at %d", count, ends)
		}
	})
}

func TestAnErrorEndsTheSearch(t *testing.T) {
	broken := errors.New("it is broken")
	if set, _, err := search(t.Context(), 3, 9, func([]int) (repack.Evaluation, error) { return repack.Evaluation{Saving: 1}, broken }); !errors.Is(err, broken) || set != nil {
		t.Errorf("%v, %v", set, err)
	}
}
