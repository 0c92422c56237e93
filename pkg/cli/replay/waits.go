package replay

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// Waits are figures of a set of waits, in seconds. Percentiles are by nearest rank: the smallest wait that at least
// that share of the set does not exceed. Those of an empty set mean nothing and are null in JSON.
type Waits struct {
	Count   int     `json:"count"`           // pods with a wait
	Of      int     `json:"ofPods"`          // pods there are, with a wait or without
	Without int     `json:"podsWithoutWait"` // pods that never came so far; they are in no percentile
	P50     float64 `json:"p50Seconds"`
	P90     float64 `json:"p90Seconds"`
	P99     float64 `json:"p99Seconds"`
	Max     float64 `json:"maxSeconds"`
}

// MarshalJSON writes null for the figures of an empty set.
func (w Waits) MarshalJSON() ([]byte, error) {
	type plain Waits // without this method
	if w.Count > 0 {
		return json.Marshal(plain(w))
	}
	return json.Marshal(struct {
		plain
		P50 *float64 `json:"p50Seconds"`
		P90 *float64 `json:"p90Seconds"`
		P99 *float64 `json:"p99Seconds"`
		Max *float64 `json:"maxSeconds"`
	}{plain: plain(w)})
}

// WaitsOf computes the figures of so many pods, of which these waited to the end.
func WaitsOf(waits []time.Duration, of int) Waits {
	if len(waits) == 0 {
		return Waits{Of: of, Without: of}
	}
	sorted := slices.Clone(waits)
	slices.Sort(sorted)
	return Waits{
		Count: len(sorted), Of: of, Without: of - len(sorted),
		P50: Percentile(sorted, 50).Seconds(),
		P90: Percentile(sorted, 90).Seconds(),
		P99: Percentile(sorted, 99).Seconds(),
		Max: sorted[len(sorted)-1].Seconds(),
	}
}

// Percentile is the nearest-rank percentile of a sorted, non-empty list.
func Percentile(sorted []time.Duration, percent float64) time.Duration {
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
