// Package male reads what a pod says of its mission in the vocabulary of the SDI projects (MALE: mission, accuracy, latency,
// energy): how much accuracy, latency and energy matter to it, from 0 to 1, by labels or annotations male.keti.dev/*. It
// makes a score, a class of criticality and a priority bucket of them. Everything is pure.
package male

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Prefix of the keys.
const Prefix = "male.keti.dev/"

// The keys, of labels or annotations.
const (
	KeyAccuracy = Prefix + "accuracy"
	KeyLatency  = Prefix + "latency"
	KeyEnergy   = Prefix + "energy"
)

// slack is below what any author distinguishes, and above what sums of decimal fractions are wrong by: 0.7 + 0.2 is less
// than 0.9 in binary.
const slack = 1e-9

// Values are how much each matters, from 0 to 1. What is not given is 0.
type Values struct {
	Accuracy, Latency, Energy float64
	// Given: the pod says one of them at least.
	Given bool
}

// Of reads the values of a pod. A label goes before an annotation, because labels are all that a policy engine of the SDI
// Migration Service is shown. The error names every value that is not a number from 0 to 1; it counts as not given.
func Of(labels, annotations map[string]string) (Values, error) {
	v := Values{}
	var problems []error
	for key, into := range map[string]*float64{KeyAccuracy: &v.Accuracy, KeyLatency: &v.Latency, KeyEnergy: &v.Energy} {
		text, ok := labels[key]
		if !ok {
			text, ok = annotations[key]
		}
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0 && x <= 1) {
			problems = append(problems, fmt.Errorf("%s: %q is not a number from 0 to 1", key, text))
			continue
		}
		*into, v.Given = x, true
	}
	return v, errors.Join(problems...)
}

// Weights of the three in the score.
type Weights struct{ Accuracy, Latency, Energy float64 }

// DefaultWeights are those of the SDI projects' sample policy.
var DefaultWeights = Weights{Accuracy: 0.5, Latency: 0.3, Energy: 0.2}

// Validate refuses weights that are negative or do not sum to 1.
func (w Weights) Validate() error {
	for _, x := range []float64{w.Accuracy, w.Latency, w.Energy} {
		if !(x >= 0 && x <= 1) {
			return fmt.Errorf("weights: %v is not from 0 to 1", x)
		}
	}
	if sum := w.Accuracy + w.Latency + w.Energy; math.Abs(sum-1) > slack {
		return fmt.Errorf("weights: they sum to %v, and must to 1", sum)
	}
	return nil
}

// Score is the weighted sum, from 0 to 1.
func (v Values) Score(w Weights) float64 {
	return min(1, w.Accuracy*v.Accuracy+w.Latency*v.Latency+w.Energy*v.Energy)
}

// Class is a class of mixed criticality.
type Class string

// The classes.
const (
	Safety     Class = "C"
	Mission    Class = "B"
	BestEffort Class = "A"
)

// Criticality is the McKube's word for the class.
func (c Class) Criticality() rt.Criticality {
	switch c {
	case Safety:
		return rt.High
	case Mission:
		return rt.Middle
	}
	return rt.Low
}

// Class follows the rules of the SDI projects' operator: safety where latency, or accuracy and latency together, are
// critical; mission where one of them is; best effort else.
func (v Values) Class() Class {
	a, l := v.Accuracy, v.Latency
	switch {
	case reaches(l, 0.9),
		reaches(l, 0.7) && reaches(a, 0.5),
		reaches(a, 0.6) && reaches(l, 0.3),
		reaches(a+l, 0.9):
		return Safety
	case reaches(l, 0.7), reaches(a, 0.6):
		return Mission
	case reaches(v.Energy, 0.7):
		return BestEffort
	case reaches(a, 0.5), reaches(l, 0.5):
		return Mission
	}
	return BestEffort
}

func reaches(x, bound float64) bool { return x >= bound-slack }

// Bucket is a range of scores: from From to where the next one begins, or to 1.
type Bucket struct {
	Name string
	From float64
}

// Buckets are ranges that leave no gap: each has its own beginning and ends before that of the next.
type Buckets []Bucket

// DefaultBuckets are those of the SDI projects' sample policy, without the gaps between .29 and .30, .59 and .60, .79 and .80.
var DefaultBuckets = Buckets{{"male-low", 0}, {"male-medium", 0.3}, {"male-high", 0.6}, {"male-critical", 0.8}}

// Validate refuses buckets that do not begin at 0, or not each after the one before.
func (b Buckets) Validate() error {
	if len(b) == 0 || b[0].From != 0 {
		return errors.New("buckets: the first must begin at 0")
	}
	for i, bucket := range b[1:] {
		if !(bucket.From > b[i].From && bucket.From <= 1) {
			return fmt.Errorf("buckets: %s begins at %v, and must after %v and at 1 at most", bucket.Name, bucket.From, b[i].From)
		}
	}
	return nil
}

// Of is the name of the bucket that a score from 0 to 1 falls into.
func (b Buckets) Of(score float64) string {
	name := ""
	for _, bucket := range b {
		if reaches(score, bucket.From) {
			name = bucket.Name
		}
	}
	return name
}
