package migration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// tally is how often migrations have ended so, by "strategy phase".
func tally(t *testing.T) map[string]float64 {
	t.Helper()
	series := make(chan prometheus.Metric, 100)
	metrics.Migrations.Collect(series)
	close(series)
	out := map[string]float64{}
	for one := range series {
		m := &dto.Metric{}
		if err := one.Write(m); err != nil {
			t.Fatal(err)
		}
		key := ""
		for _, label := range slices.Backward(m.GetLabel()) { // strategy, then result: labels are in their order
			key = strings.TrimSpace(key + " " + label.GetValue())
		}
		if n := m.GetCounter().GetValue(); n > 0 {
			out[key] = n
		}
	}
	return out
}

// Each migration counts once, as what became of it, whichever process ends it. One that goes elsewhere is no rollback. One that could
// not be rolled back in time has failed. The test runs alone, as counters are the process's.
func TestEveryMigrationCountsOnce(t *testing.T) {
	for _, c := range []struct {
		journey
		want string
	}{
		{journey{name: "succeeds", town: func(w *town) { w.rollout(1) }, ask: ask("Surge"), phase: "Succeeded", places: "b"}, "surge Succeeded"},
		{journey{name: "elsewhere", town: nodes("c"), ask: ask("Restart"), during: overtaken(1), phase: "Succeeded", places: "c"}, "restart Succeeded"},
		{journey{name: "refused", town: (*town).forbid, ask: ask(""), phase: "Refused", places: "a"}, "none Refused"},
		{journey{name: "undone", town: func(w *town) { w.rollout(2) }, ask: ask("Surge"), during: at("Verifying", abort), phase: "Aborted", places: "a a"}, "surge Aborted"},
		{journey{name: "not-undone", town: func(w *town) { w.rollout(1) }, ask: ask("Surge"), during: at("Verifying", func(w *town) {
			w.hold(true)
			abort(w)
		}), phase: "Failed", says: "could not be undone", places: "a"}, "surge Failed"},
	} {
		before := tally(t)
		w := c.tell(t, 0, false)
		w.hold(false)
		var more []string
		for key, n := range tally(t) {
			if n -= before[key]; n != 0 {
				more = append(more, fmt.Sprintf("%s:%v", key, n))
			}
		}
		if got := strings.Join(more, " "); got != c.want+":1" {
			t.Errorf("%s: counted as %q, want %q once", c.name, got, c.want)
		}
	}
}
