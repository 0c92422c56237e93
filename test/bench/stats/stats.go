// Package stats summarises what benchmarks measured.
package stats

import "slices"

// Sorted values, ascending.
type Sorted []float64

// Of sorts a copy of the values.
func Of(values []float64) Sorted { return slices.Sorted(slices.Values(values)) }

// Quantile is the smallest value that at least the share q of the values do not exceed (nearest rank);
// 0 when there are none.
func (s Sorted) Quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	rank := int(q * float64(len(s)))
	if float64(rank) < q*float64(len(s)) {
		rank++
	}
	return s[min(max(rank, 1), len(s))-1]
}

// Max is the largest value; 0 when there are none.
func (s Sorted) Max() float64 { return s.Quantile(1) }

// Share is the part of the values for which the test holds; 0 when there are none.
func (s Sorted) Share(test func(float64) bool) float64 {
	if len(s) == 0 {
		return 0
	}
	n := 0
	for _, v := range s {
		if test(v) {
			n++
		}
	}
	return float64(n) / float64(len(s))
}
