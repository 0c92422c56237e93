// Package sampling has tests that repeat one check at many points do so at some of them: before which write a process dies, how many
// random histories are played. `make test` samples by a seed that differs from run to run, so that many runs together try every point;
// `make test-exhaustive` tries all of them in one.
//
// Every test logs its seed and what it has sampled, and one that fails logs the command that repeats it.
package sampling

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
// ascending order. They depend on the seed, the name of the test and the arguments, not on which other tests run. Every point is as likely
// as any other. The first and the last are not always tried: a test has two to four points, and a process that dies before its first write
// differs least from one that does not die.
func Points(t testing.TB, first, last, atMost int) []int {
	t.Helper()
	if last < first {
		return nil
	}
	n := last - first + 1
	if Exhaustive() {
		tellOnFailure(t, ExhaustiveVariable+"=1")
		t.Logf("tries all points from %d to %d", first, last)
		return sequence(first, n)
	}
	if n <= atMost {
		return sequence(first, n)
	}
	points := Rand(t).Perm(n)[:max(atMost, 0)]
	for i := range points {
		points[i] += first
	}
	slices.Sort(points)
	t.Logf("tries %d of %d points, from %d to %d: %v", len(points), n, first, last, points)
	return points
}

func sequence(first, n int) []int {
	points := make([]int, n)
	for i := range points {
		points[i] = first + i
	}
	return points
}

// OneIn reports whether the test tries what one test in n does, by the seed and its name; always when the sampling is off.
func OneIn(t testing.TB, n int) bool {
	t.Helper()
	// A stream of its own: Points draws from that of the test's name, and would try only points that go with this answer.
	return Exhaustive() || randOf(t, t.Name()+" is tried").IntN(n) == 0
}

// Stride returns where a loop over points begins whose end only the check itself finds, and its steps: 1 and 1 when the sampling is off, otherwise every
// step-th point from one of the first step.
func Stride(t testing.TB, step int) (first, by int) {
	t.Helper()
	if Exhaustive() {
		tellOnFailure(t, ExhaustiveVariable+"=1")
		return 1, 1
	}
	return 1 + Rand(t).IntN(step), step
}

// Count returns how often a random check is repeated: all times when the sampling is off, otherwise sampled times.
func Count(sampled, all int) int {
	if Exhaustive() {
		return all
	}
	return sampled
}

// RapidChecks sets how many random cases each property of rapid draws: all when the sampling is off, otherwise sampled. The flag -rapid.checks overrides it.
// TestMain calls it before the tests run.
func RapidChecks(sampled, all int) {
	const name = "rapid.checks"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(Count(sampled, all))); err != nil {
		fmt.Fprintf(os.Stderr, "setting -%s: %v\n", name, err)
		os.Exit(2)
	}
}

// Rand returns random numbers that depend on the seed and the name of the test. It logs the seed, and once the test has failed the
// command that repeats it.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return randOf(t, t.Name())
}

// randOf returns random numbers that depend on the seed and a text.
func randOf(t testing.TB, text string) *rand.Rand {
	t.Helper()
	seed, err := processSeed()
	if err != nil {
		t.Fatalf("%s: want a decimal number: %v", SeedVariable, err)
	}
	set := fmt.Sprintf("%s=%d", SeedVariable, seed)
	t.Log(set)
	tellOnFailure(t, set)
	name := fnv.New64a()
	_, _ = name.Write([]byte(text)) // a hash takes all
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

// tellOnFailure logs the command that repeats the test, if the test or a subtest fails.
func tellOnFailure(t testing.TB, set string) {
	t.Helper()
	t.Cleanup(func() {
		t.Helper()
		if t.Failed() {
			t.Logf("repeat it with: %s", command(set, t.Name()))
		}
	})
}

// command repeats a test of this package by what is set in its environment.
func command(set, test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	pattern := strings.ReplaceAll(strings.Join(parts, "/"), "'", `'\''`) // as a shell quotes it
	return fmt.Sprintf("%s go test -count=1 -run '%s' %s", set, pattern, packageDir())
}

// packageDir is the package's directory, as `go test` takes it in the root of the module. The go command runs a test in that directory; the
// process asks for it when it starts, as tests may go elsewhere.
func packageDir() string {
	for root := startedIn; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			dir, err := filepath.Rel(root, startedIn)
			if err != nil || dir == "." {
				return "."
			}
			return "./" + filepath.ToSlash(dir)
		}
		if root == filepath.Dir(root) {
			return "."
		}
	}
}

var startedIn, _ = os.Getwd() // without it the command names the current directory
