package sampling_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// withSeed has the test sample by a seed, whatever the environment says.
func withSeed(t *testing.T, seed int) {
	t.Helper()
	t.Setenv(sampling.ExhaustiveVariable, "")
	t.Setenv(sampling.SeedVariable, fmt.Sprint(seed))
}

func TestPointsDependOnTheSeed(t *testing.T) {
	withSeed(t, 1)
	first := sampling.Points(t, 10, 500, 4)
	if again := sampling.Points(t, 10, 500, 4); !slices.Equal(first, again) {
		t.Errorf("one seed gives %v and %v", first, again)
	}
	withSeed(t, 2)
	if second := sampling.Points(t, 10, 500, 4); slices.Equal(first, second) {
		t.Errorf("two seeds give %v", first)
	}
	t.Run("another name", func(t *testing.T) {
		withSeed(t, 1)
		if other := sampling.Points(t, 10, 500, 4); slices.Equal(first, other) {
			t.Errorf("two tests have the points %v", first)
		}
	})
}

// Many runs together try each point, and no other; each run tries as many as it may, none twice.
func TestEveryPointIsTriedByManyRuns(t *testing.T) {
	tried := map[int]bool{}
	for seed := range 200 {
		withSeed(t, seed)
		points := sampling.Points(t, 3, 22, 2)
		if len(points) != 2 || points[0] >= points[1] || points[0] < 3 || points[1] > 22 {
			t.Fatalf("seed %d: points %v, want 2 of 3 to 22 in ascending order", seed, points)
		}
		for _, p := range points {
			tried[p] = true
		}
	}
	if len(tried) != 20 {
		t.Errorf("200 seeds tried %d of 20 points", len(tried))
	}
}

func TestPointsOfSmallRanges(t *testing.T) {
	withSeed(t, 1)
	for _, c := range []struct {
		first, last, atMost int
		want                []int
	}{{1, 2, 2, []int{1, 2}}, {1, 3, 5, []int{1, 2, 3}}, {4, 3, 2, nil}, {1, 5, 0, []int{}}} {
		if got := sampling.Points(t, c.first, c.last, c.atMost); !slices.Equal(got, c.want) {
			t.Errorf("%d of %d to %d: %v, want %v", c.atMost, c.first, c.last, got, c.want)
		}
	}
}

func TestExhaustiveTriesAll(t *testing.T) {
	t.Setenv(sampling.ExhaustiveVariable, "1")
	if got := sampling.Points(t, 1, 5, 2); !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
		t.Errorf("points %v, want all of 1 to 5", got)
	}
	if got := sampling.Count(3, 3_000); got != 3_000 {
		t.Errorf("repeated %d times, want 3000", got)
	}
	t.Setenv(sampling.ExhaustiveVariable, "")
	if got := sampling.Count(3, 3_000); got != 3 {
		t.Errorf("repeated %d times, want 3", got)
	}
}
