package male_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/policy/male"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestValuesComeFromLabelsThenAnnotations(t *testing.T) {
	labels := map[string]string{male.KeyAccuracy: "0.6"}
	annotations := map[string]string{male.KeyAccuracy: "0.1", male.KeyLatency: "0.25"}
	got, err := male.Of(labels, annotations)
	if want := (male.Values{Accuracy: 0.6, Latency: 0.25, Given: true}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := male.Of(nil, nil); err != nil || got.Given {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
}

func TestWhatIsNoShareIsNamedAndNotGiven(t *testing.T) {
	for _, text := range []string{"", "high", "1.01", "-0.1", "NaN", "Inf", "0,5"} {
		got, err := male.Of(map[string]string{male.KeyEnergy: text}, nil)
		if err == nil || !strings.Contains(err.Error(), male.KeyEnergy) || !strings.Contains(err.Error(), strconv.Quote(text)) || got.Given {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestClassesAreThoseOfTheOperator(t *testing.T) {
	for _, c := range []struct {
		a, l, e float64
		class   male.Class
		means   rt.Criticality
	}{
		{0, 0.9, 0, male.Safety, rt.High},
		{0.5, 0.7, 0, male.Safety, rt.High},
		{0.6, 0.3, 0.1, male.Safety, rt.High}, // autonomous driving
		{0.7, 0.2, 0, male.Safety, rt.High},   // 0.7 + 0.2 is less than 0.9 in binary
		{0.4, 0.5, 0.1, male.Safety, rt.High}, // navigation
		{0.1, 0.7, 0.2, male.Mission, rt.Middle},
		{0.6, 0.1, 0.9, male.Mission, rt.Middle},
		{0.3, 0.5, 0.2, male.Mission, rt.Middle},
		{0.2, 0.1, 0.7, male.BestEffort, rt.Low},
		{0.55, 0.1, 0.7, male.BestEffort, rt.Low},
		{0.2, 0.3, 0.5, male.BestEffort, rt.Low},
		{0, 0, 0, male.BestEffort, rt.Low},
	} {
		v := male.Values{Accuracy: c.a, Latency: c.l, Energy: c.e, Given: true}
		if got := v.Class(); got != c.class || got.Criticality() != c.means {
			t.Errorf("A %v L %v E %v: class %s (%s), want %s (%s)", c.a, c.l, c.e, got, got.Criticality(), c.class, c.means)
		}
	}
}

func TestScoresFallWithoutGaps(t *testing.T) {
	for score, want := range map[float64]string{
		0: "male-low", 0.295: "male-low", 0.3: "male-medium", 0.595: "male-medium", 0.6: "male-high", 0.795: "male-high", 0.8: "male-critical", 1: "male-critical",
	} {
		if got := male.DefaultBuckets.Of(score); got != want {
			t.Errorf("%v is %s, want %s", score, got, want)
		}
	}
}

func TestDefaultsAreValidAndOthersMayNotBe(t *testing.T) {
	if err := male.DefaultWeights.Validate(); err != nil {
		t.Error(err)
	}
	if err := male.DefaultBuckets.Validate(); err != nil {
		t.Error(err)
	}
	for _, w := range []male.Weights{{}, {Accuracy: 1, Latency: 1}, {Accuracy: 2, Latency: -1}, {Accuracy: math.NaN(), Latency: 1}} {
		if w.Validate() == nil {
			t.Errorf("weights %+v are taken", w)
		}
	}
	for _, b := range []male.Buckets{nil, {{"a", 0.1}}, {{"a", 0}, {"b", 0}}, {{"a", 0}, {"b", 1.5}}, {{"a", 0}, {"b", 0.5}, {"c", 0.4}}} {
		if b.Validate() == nil {
			t.Errorf("buckets %+v are taken", b)
		}
	}
}

// Whatever a pod says: the score is from 0 to 1, falls into a bucket, and more of anything never makes it smaller.
func TestScoreOfAnyPod(t *testing.T) {
	share := rapid.Float64Range(0, 1)
	rapid.Check(t, func(t *rapid.T) {
		v := male.Values{Accuracy: share.Draw(t, "a"), Latency: share.Draw(t, "l"), Energy: share.Draw(t, "e")}
		score := v.Score(male.DefaultWeights)
		if score < 0 || score > 1 || male.DefaultBuckets.Of(score) == "" {
			t.Fatalf("%+v: score %v in bucket %q", v, score, male.DefaultBuckets.Of(score))
		}
		more := v
		more.Latency = rapid.Float64Range(v.Latency, 1).Draw(t, "more")
		if more.Score(male.DefaultWeights) < score || more.Class().Criticality() < v.Class().Criticality() {
			t.Fatalf("%+v counts less than %+v", more, v)
		}
	})
}

func FuzzOf(f *testing.F) {
	for _, text := range []string{"0.5", "1e-400", "0x1p-2", "NaN", "+Inf", "1_0"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, label, annotation string) {
		v, _ := male.Of(map[string]string{male.KeyAccuracy: label}, map[string]string{male.KeyLatency: annotation})
		for _, x := range []float64{v.Accuracy, v.Latency, v.Energy, v.Score(male.DefaultWeights)} {
			if !(x >= 0 && x <= 1) {
				t.Errorf("%q and %q make %+v", label, annotation, v)
			}
		}
	})
}
