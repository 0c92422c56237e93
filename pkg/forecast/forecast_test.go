package forecast_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/forecast"
)

// hours is a history by a function of the hour.
func hours(n int, f func(h int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

func business(h int) float64 {
	if d := h / 24 % 7; d >= 5 {
		return 2
	}
	if h%24 >= 8 && h%24 < 18 {
		return 10
	}
	return 4
}

func TestTheMethodThatDoesBestIsChosen(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct {
		history []float64
		want    forecast.Method
		next    func(h int) float64
	}{
		"always the same": {hours(200, func(int) float64 { return 3 }), forecast.Naive, func(int) float64 { return 3 }},
		"days alike":      {hours(200, func(h int) float64 { return float64(h % 24) }), forecast.Daily, func(h int) float64 { return float64(h % 24) }},
		"weeks alike":     {hours(4*168, business), forecast.Weekly, business},
	} {
		f, ok := forecast.New(c.history)
		if !ok || f.Method != c.want {
			t.Errorf("%s: %s, %v, want %s", name, f.Method, ok, c.want)
			continue
		}
		for i, got := range f.Next(100) {
			if want := c.next(len(c.history) + i); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: hour %d is %v, want %v", name, i, got, want)
				break
			}
		}
	}
	// Days alike under noise: smoothing sees through it, repeating does not.
	noisy := hours(336, func(h int) float64 { return 20 + 10*math.Sin(float64(h)/24*2*math.Pi) + 3*random.NormFloat64() })
	if f, ok := forecast.New(noisy); !ok || f.Method != forecast.HoltWinters || f.ScaledError > 0.6 {
		t.Errorf("days under noise: %s, error %v, %v", f.Method, f.ScaledError, ok)
	}
	// A random walk has nothing to be learnt from: whatever is chosen is at least no worse than repeating.
	at := 50.0
	walk := hours(336, func(int) float64 { at += random.NormFloat64(); return at })
	if f, ok := forecast.New(walk); !ok || f.ScaledError > 1 || (f.Method == forecast.Naive) != (f.ScaledError == 1) {
		t.Errorf("a random walk: %s, error %v, %v", f.Method, f.ScaledError, ok)
	}
}

func TestTooLittleIsKnown(t *testing.T) {
	t.Parallel()
	if _, ok := forecast.New(hours(47, func(int) float64 { return 1 })); ok {
		t.Error("47 hours are enough")
	}
	if _, ok := forecast.New(hours(300, func(h int) float64 {
		if h%10 == 0 {
			return 1
		}
		return math.NaN()
	})); ok {
		t.Error("30 known hours of 300 are enough")
	}
	f, ok := forecast.New(hours(60, func(int) float64 { return 1 }))
	if _, bounded := f.Excess(); !ok || bounded {
		t.Errorf("60 hours: known %v, bounded %v", ok, bounded)
	}
}

// The upper bound of a day holds on days that the history did not see, about as often as it says.
func TestTheUpperBoundHolds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 3))
	held, bounded := 0, 0
	for range 300 {
		level := 0.0
		all := hours(360, func(h int) float64 {
			level = 0.95*level + random.NormFloat64()
			return 30 + 10*math.Sin(float64(h)/24*2*math.Pi) + level
		})
		f, ok := forecast.New(all[:336])
		if !ok {
			t.Fatal("nothing is predicted")
		}
		excess, ok := f.Excess()
		if !ok {
			continue
		}
		bounded++
		expected, real := 0.0, 0.0
		for i, x := range f.Next(24) {
			expected, real = expected+x, real+all[336+i]
		}
		if real <= expected+excess {
			held++
		}
	}
	if share := float64(held) / float64(bounded); bounded < 100 || share < 0.82 || share > 0.97 {
		t.Errorf("the bound held in %d of %d", held, bounded)
	}
}

// Whatever the history: every figure is a number, at least 0, and no method is told that does worse than repeating.
func TestAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := hours(rapid.IntRange(0, 400).Draw(t, "hours"), func(int) float64 {
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				return math.NaN()
			case 1:
				return 0
			}
			return float64(rapid.IntRange(0, 1_000_000).Draw(t, "value")) / 1000
		})
		f, ok := forecast.New(history)
		if !ok {
			return
		}
		for _, x := range f.Next(800) {
			if !(x >= 0) || math.IsInf(x, 0) {
				t.Fatalf("%s expects %v", f.Method, x)
			}
		}
		if !(f.ScaledError <= 1) {
			t.Fatalf("%s has an error of %v", f.Method, f.ScaledError)
		}
		if excess, ok := f.Excess(); ok && !(excess >= 0) {
			t.Fatalf("excess %v", excess)
		}
	})
}
