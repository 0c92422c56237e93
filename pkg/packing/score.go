package packing

import "math"

// Gain returns how far a value has come from that of the plainest placement, base, to the bound: 0 at base or worse, 1 at the
// bound or better.
func Gain(base, now, bound float64) float64 {
	if math.IsNaN(base) || math.IsNaN(now) || math.IsNaN(bound) {
		return 0
	}
	if base <= bound*(1+tolerance) { // nothing can be gained
		if now <= bound*(1+1e-6) {
			return 1
		}
		return 0
	}
	return min(1, max(0, (base-now)/(base-bound)))
}

// Score is the geometric mean of gains, each from 0 to 1: none of them can be bought with another. It is 0 without any.
func Score(gains ...float64) float64 {
	if len(gains) == 0 {
		return 0
	}
	product := 1.0
	for _, g := range gains {
		product *= g
	}
	return math.Pow(product, 1/float64(len(gains)))
}
