package sampling_test

import (
	"fmt"
	"slices"
	"strings"
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

// recorded is a test of which this one decides whether it fails, and reads what it logs.
type recorded struct {
	testing.TB
	name    string
	failed  bool
	cleanup []func()
	log     []string
}

func (r *recorded) Helper()          {}
func (r *recorded) Name() string     { return r.name }
func (r *recorded) Failed() bool     { return r.failed }
func (r *recorded) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorded) Log(args ...any)  { r.log = append(r.log, fmt.Sprint(args...)) }
func (r *recorded) Logf(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// ends returns what the test has logged in the end.
func (r *recorded) ends(failed bool) string {
	r.failed = failed
	for _, f := range r.cleanup {
		f()
	}
	return strings.Join(r.log, "\n")
}

func TestAFailureTellsHowToRepeatIt(t *testing.T) {
	withSeed(t, 7)
	const name = "TestKilled/a_pod's_day/write_3#01"
	const want = `repeat it with: MAINSPRING_TEST_SEED=7 go test -count=1 -run '^TestKilled$/^a_pod'\''s_day$/^write_3#01$' ./pkg/test/sampling`
	r := &recorded{TB: t, name: name}
	sampling.Points(r, 1, 9, 2)
	if log := r.ends(true); !strings.Contains(log, want) || !strings.Contains(log, "tries 2 of 9 points, from 1 to 9: [") {
		t.Errorf("it logs\n%s\nwant\n%s", log, want)
	}
	r = &recorded{TB: t, name: name}
	sampling.Points(r, 1, 9, 2)
	if log := r.ends(false); strings.Contains(log, "repeat it") || !strings.Contains(log, "MAINSPRING_TEST_SEED=7") {
		t.Errorf("a test that passes logs\n%s", log)
	}
	t.Setenv(sampling.ExhaustiveVariable, "1")
	r = &recorded{TB: t, name: "TestKilled"}
	sampling.Points(r, 1, 9, 2)
	if log := r.ends(true); !strings.Contains(log, "repeat it with: MAINSPRING_TEST_EXHAUSTIVE=1 go test -count=1 -run '^TestKilled$' ./pkg/test/sampling") {
		t.Errorf("with the sampling off it logs\n%s", log)
	}
}

// A process without a seed in its environment takes one of its own, and keeps it.
func TestOwnSeed(t *testing.T) {
	t.Setenv(sampling.ExhaustiveVariable, "")
	t.Setenv(sampling.SeedVariable, "")
	if one, other := sampling.Points(t, 1, 1_000_000, 3), sampling.Points(t, 1, 1_000_000, 3); !slices.Equal(one, other) {
		t.Errorf("one process samples %v and %v", one, other)
	}
}

func TestRandDependsOnSeedAndName(t *testing.T) {
	withSeed(t, 1)
	first := sampling.Rand(t).Uint64()
	if again := sampling.Rand(t).Uint64(); again != first {
		t.Errorf("one seed gives %d and %d", first, again)
	}
	if other := sampling.Rand(&recorded{TB: t, name: "TestOther"}).Uint64(); other == first {
		t.Errorf("two tests have %d", first)
	}
	withSeed(t, 2)
	if other := sampling.Rand(t).Uint64(); other == first {
		t.Errorf("two seeds give %d", first)
	}
}

// Of many runs about half try what one test in two does, and these try every point, of any number of them.
func TestOneInTwoTriesEveryPoint(t *testing.T) {
	for _, points := range []int{8, 13, 16} {
		chosen, tried := 0, map[int]bool{}
		for seed := range 400 {
			withSeed(t, seed)
			if sampling.OneIn(t, 2) {
				chosen++
				tried[sampling.Points(t, 1, points, 1)[0]] = true
			}
		}
		if chosen < 150 || chosen > 250 || len(tried) != points {
			t.Errorf("%d of 400 runs try %d of %d points", chosen, len(tried), points)
		}
	}
	t.Setenv(sampling.ExhaustiveVariable, "1")
	if !sampling.OneIn(t, 1000) {
		t.Error("with the sampling off it is not tried")
	}
}

// Strides of many runs begin at each of the first points, so that together they try all; with the sampling off one tries all.
func TestStridesTryEveryPointTogether(t *testing.T) {
	begins := map[int]bool{}
	for seed := range 50 {
		withSeed(t, seed)
		first, by := sampling.Stride(t, 3)
		if begins[first] = true; first < 1 || first > 3 || by != 3 {
			t.Fatalf("from %d by %d", first, by)
		}
	}
	if len(begins) != 3 {
		t.Errorf("strides begin at %v", begins)
	}
	t.Setenv(sampling.ExhaustiveVariable, "1")
	if first, by := sampling.Stride(t, 3); first != 1 || by != 1 {
		t.Errorf("with the sampling off: from %d by %d", first, by)
	}
}
