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

// A node that is in the first set and does not pay for its moves goes from it.
func TestANodeThatDoesNotPayIsDropped(t *testing.T) {
	worth := []float64{3, -1, 2, 0}
	set, saving, err := repack.Search(t.Context(), len(worth), func(_ context.Context, set []int) (float64, error) {
		sum := 0.0
		for _, i := range set {
			sum += worth[i]
		}
		return sum, nil
	})
	if err != nil || saving != 5 || !slices.Equal(set, []int{0, 2}) {
		t.Errorf("%v saves %g (%v), want 0 and 2, which save 5", set, saving, err)
	}
}

// Whatever sets save, the result is a set that was evaluated, ascending, and the best of those; the number is bounded.
func TestSearchReturnsTheBestThatItEvaluated(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 120).Draw(rt, "nodes")
		savings := rapid.SliceOfN(rapid.Float64Range(-5, 5), repack.MaxEvaluations, repack.MaxEvaluations).Draw(rt, "savings")
		ends := rapid.IntRange(0, repack.MaxEvaluations).Draw(rt, "evaluations before the context ends")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		count, best := 0, 0.0
		var seen [][]int
		set, saving, err := repack.Search(ctx, n, func(_ context.Context, set []int) (float64, error) {
			if len(set) == 0 || set[0] < 0 || set[len(set)-1] >= n || !slices.IsSorted(set) || len(slices.Compact(slices.Clone(set))) != len(set) {
				rt.Fatalf("evaluates %v of %d nodes", set, n)
			}
			if count++; count > repack.MaxEvaluations {
				rt.Fatalf("%d evaluations", count)
			}
			if count == ends {
				cancel()
			}
			best = max(best, savings[count-1])
			seen = append(seen, slices.Clone(set))
			return savings[count-1], nil
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
	if set, _, err := repack.Search(t.Context(), 3, func(context.Context, []int) (float64, error) { return 1, broken }); !errors.Is(err, broken) || set != nil {
		t.Errorf("%v, %v", set, err)
	}
}
