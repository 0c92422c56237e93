package rt_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestTriggerAndDwellByDefault(t *testing.T) {
	t.Parallel()
	for c, want := range map[rt.Criticality][2]int{rt.High: {1, 1}, rt.Middle: {2, 10}, rt.Low: {2, 10}} {
		if overruns, periods := rt.Trigger(c); [2]int{overruns, periods} != want {
			t.Errorf("%s: %d of %d; want %v", c, overruns, periods, want)
		}
	}
	for period, want := range map[int64]int64{10_000: 1_000_000, 50_000: 1_000_000, 100_000: 2_000_000} {
		if got := rt.Dwell(period); got != want {
			t.Errorf("a period of %d us: %d us; want %d", period, got, want)
		}
	}
}
