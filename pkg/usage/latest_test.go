package usage_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// The more of CPU and memory is what a node has in use; what is old, or of which one half is missing, is unknown.
func TestTheLatestReadings(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	clk := clocktesting.NewFakePassiveClock(now)
	l := usage.NewLatest(clk, time.Minute)
	expect := func(node string, want float64, known bool) {
		t.Helper()
		if got, ok := l.Load(node); got != want || ok != known {
			t.Errorf("node %s: %v, %t; want %v, %t", node, got, ok, want, known)
		}
	}
	expect("a", 0, false)
	value := func(ratio float64, at time.Time) usage.Value { return usage.Value{Ratio: ratio, At: at} }
	l.Keep(map[string]usage.Usage{
		"a": {CPU: value(0.4, now), Memory: value(0.7, now)}, "b": {CPU: value(0.9, now), Memory: value(0.1, now)},
		"half": {CPU: value(0.9, now)}, "older": {CPU: value(0.9, now.Add(-59*time.Second)), Memory: value(0.1, now.Add(-2*time.Minute))},
	})
	expect("a", 0.7, true)
	expect("b", 0.9, true)
	expect("half", 0, false)
	expect("older", 0, false)
	expect("another", 0, false)
	clk.SetTime(now.Add(61 * time.Second))
	expect("a", 0, false)
	clk.SetTime(now)
	l.Keep(nil) // the source gives no answer
	expect("a", 0, false)
}
