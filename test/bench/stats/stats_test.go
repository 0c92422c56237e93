package stats_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		name   string
		values []float64
		q      float64
		want   float64
	}{
		{"nothing", nil, 0.5, 0},
		{"one value", []float64{7}, 0.99, 7},
		{"the median of an odd number", []float64{3, 1, 2}, 0.5, 2},
		{"the lower median of an even number", []float64{4, 1, 3, 2}, 0.5, 2},
		{"p99 of a hundred", hundred, 0.99, 99},
		{"p99.9 of a hundred is the largest", hundred, 0.999, 100},
		{"the smallest", hundred, 0, 1},
		{"the largest", hundred, 1, 100},
	} {
		if got := stats.Of(c.values).Quantile(c.q); got != c.want {
			t.Errorf("%s: got %v; want %v", c.name, got, c.want)
		}
	}
}

func TestQuantileHoldsItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		sorted := stats.Of(values)
		at := sorted.Quantile(q)
		if got := sorted.Share(func(v float64) bool { return v <= at }); got < q-1e-9 {
			t.Fatalf("only %v of the values are at most the %v quantile, %v", got, q, at)
		}
		if at > sorted.Max() {
			t.Fatalf("quantile %v is above the largest, %v", at, sorted.Max())
		}
	})
}
