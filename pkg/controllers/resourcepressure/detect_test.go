package resourcepressure

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/usage"
)

var (
	begin   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	usually = setting{percent: 85, interval: 30 * time.Second}
)

// reading is the i-th one; below zero: unknown.
func reading(i int, ratio float64) usage.Value {
	if ratio < 0 {
		return usage.Value{}
	}
	return usage.Value{Ratio: ratio, At: begin.Add(time.Duration(i) * 30 * time.Second)}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ratios []float64
		want   string // + under pressure, - not, after each reading
	}{
		"three in a row":            {[]float64{0.86, 0.9, 0.851}, "--+"},
		"not above":                 {[]float64{0.85, 0.85, 0.85, 0.85}, "----"},
		"two are not enough":        {[]float64{0.9, 0.9, 0.85, 0.9, 0.9, 0.9}, "-----+"},
		"unknown ends the row":      {[]float64{0.9, 0.9, -1, 0.9, 0.9, 0.9}, "-----+"},
		"unknown takes nothing":     {[]float64{0.9, 0.9, 0.9, -1, -1, 0.8, 0.74}, "--++++-"},
		"ten points below":          {[]float64{1.2, 1.2, 1.2, 0.84, 0.75, 0.76, 0.749}, "--++++-"},
		"begins anew":               {[]float64{0.9, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9}, "--+---+"},
		"zero is a reading, too":    {[]float64{0.9, 0.9, 0.9, 0}, "--+-"},
		"between it stays as it is": {[]float64{0.8, 0.8, 0.8, 0.8}, "----"},
	} {
		r, got := run{}, ""
		for i, ratio := range c.ratios {
			r = r.next(reading(i, ratio), usually, 3)
			got += map[bool]string{true: "+", false: "-"}[r.pressed]
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// A source that gives the same reading three times has not measured three times.
func TestAReadingCountsOnce(t *testing.T) {
	t.Parallel()
	r := run{}
	for range 10 {
		r = r.next(reading(1, 0.99), usually, 3)
	}
	if r.pressed || r.over != 1 {
		t.Errorf("got %+v", r)
	}
}

// Pressure begins only after as many readings above the threshold as it takes, and ends only below the lower one.
func TestRunProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.IntRange(1, 5).Draw(t, "samples")
		ratios := rapid.SliceOfN(rapid.SampledFrom([]float64{-1, 0, 0.5, 0.749, 0.75, 0.8, 0.85, 0.851, 1, 2}), 1, 40).Draw(t, "ratios")
		r := run{}
		for i, ratio := range ratios {
			before := r.pressed
			r = r.next(reading(i, ratio), usually, samples)
			row := 0
			for j := i; j >= 0 && ratios[j] > 0.85; j-- {
				row++
			}
			switch {
			case r.pressed && !before && row < samples, !r.pressed && row >= samples:
				t.Fatalf("%v of %v: %+v after %d in a row", i, ratios, r, row)
			case !r.pressed && before && (ratio < 0 || ratio >= 0.75):
				t.Fatalf("%v of %v: ended at %v", i, ratios, ratio)
			}
		}
	})
}

func TestTrack(t *testing.T) {
	t.Parallel()
	both := usage.Usage{CPU: reading(0, 0.9), Memory: reading(0, 0.95)}
	tr := track{}.next(both, usually, 1)
	if tr.reason() != reasonBoth || !tr.evident() || !strings.Contains(tr.words(usually, "prometheus"), "CPU is at 90.0 %, memory is at 95.0 %; the threshold is 85 %, and the pressure ends below 75 % (source prometheus)") {
		t.Errorf("%s: %s", tr.reason(), tr.words(usually, "prometheus"))
	}
	tr = tr.next(usage.Usage{CPU: reading(1, 0.5)}, usually, 1)
	if tr.reason() != reasonMemory || tr.evident() || !tr.pressed() || !strings.Contains(tr.words(usually, "x"), "memory was too high, and is unknown now") {
		t.Errorf("%s: %s", tr.reason(), tr.words(usually, "x"))
	}
	for _, reason := range []string{reasonCPU, reasonMemory, reasonBoth} {
		if got := resumed(reason).reason(); got != reason {
			t.Errorf("%s resumes as %s", reason, got)
		}
	}
	if resumed("").pressed() || resumed(reasonUnknown).pressed() {
		t.Error("a node without a condition is under pressure")
	}
}
