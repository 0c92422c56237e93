package replay

import (
	"math"
	"slices"
	"time"
)

// Waits are figures of a set of waits, in seconds. Percentiles are by nearest rank: the smallest wait that at least
// that share of the set does not exceed.
type Waits struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Seconds"`
	P90   float64 `json:"p90Seconds"`
	P99   float64 `json:"p99Seconds"`
	Max   float64 `json:"maxSeconds"`
}

// WaitsOf computes the figures; all are 0 for an empty set.
func WaitsOf(waits []time.Duration) Waits {
	if len(waits) == 0 {
		return Waits{}
	}
	sorted := slices.Clone(waits)
	slices.Sort(sorted)
	return Waits{
		Count: len(sorted),
		P50:   Percentile(sorted, 50).Seconds(),
		P90:   Percentile(sorted, 90).Seconds(),
		P99:   Percentile(sorted, 99).Seconds(),
		Max:   sorted[len(sorted)-1].Seconds(),
	}
}

// Percentile is the nearest-rank percentile of a sorted, non-empty list.
func Percentile(sorted []time.Duration, percent float64) time.Duration {
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
