// Package sampling has tests that repeat one check at many points do so at some of them: before which write a process dies, how many
// random histories are played. `make test` samples by a seed that differs from run to run, so that many runs together try every point;
// `make test-exhaustive` tries all of them in one.
//
// Every test logs what it has sampled. MAINSPRING_TEST_SEED repeats it.
package sampling

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

const (
	// SeedVariable names the environment variable with the seed, a decimal number. Without it each process takes one of its own.
	SeedVariable = "MAINSPRING_TEST_SEED"
	// ExhaustiveVariable names the environment variable that, set to 1, turns the sampling off.
	ExhaustiveVariable = "MAINSPRING_TEST_EXHAUSTIVE"
)

// Exhaustive reports whether the sampling is off.
func Exhaustive() bool { return os.Getenv(ExhaustiveVariable) == "1" }

// Points returns the points from first to last that the test tries: all when the sampling is off, otherwise at most atMost, in
// ascending order. They depend on the seed, the name of the test and the arguments, not on which other tests run.
func Points(t testing.TB, first, last, atMost int) []int {
	t.Helper()
	if last < first {
		return nil
	}
	n := last - first + 1
	if Exhaustive() || n <= atMost {
		return sequence(first, n)
	}
	points := Rand(t).Perm(n)[:max(atMost, 0)]
	for i := range points {
		points[i] += first
	}
	slices.Sort(points)
	t.Logf("sampled points %v of %d to %d", points, first, last)
	return points
}

func sequence(first, n int) []int {
	points := make([]int, n)
	for i := range points {
		points[i] = first + i
	}
	return points
}

// Count returns how often a random check is repeated: all times when the sampling is off, otherwise sampled times.
func Count(sampled, all int) int {
	if Exhaustive() {
		return all
	}
	return sampled
}

// Rand returns random numbers that depend on the seed and the name of the test, and logs how to have the same again.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := processSeed()
	if err != nil {
		t.Fatalf("%s: want a decimal number: %v", SeedVariable, err)
	}
	t.Logf("%s=%d repeats this", SeedVariable, seed)
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name())) // a hash takes all
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}

// processSeed is the environment's, or one for the life of the process.
func processSeed() (uint64, error) {
	if text := os.Getenv(SeedVariable); text != "" {
		return strconv.ParseUint(text, 10, 64)
	}
	return ownSeed(), nil
}

var ownSeed = sync.OnceValue(rand.Uint64)
