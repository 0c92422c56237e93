package agent_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// diary notes when the status was written.
type diary struct {
	agent.API // nothing else is asked for
	now       func() time.Time
	written   []time.Time
}

func (d *diary) ApplyStatus(context.Context, string, types.UID, v1alpha1.RTNodeStatus) error {
	d.written = append(d.written, d.now())
	return nil
}

// However much happens on a node, its status is written once a second at most, for counters alone every other
// second, and for the heartbeat when nothing happens.
func TestTheStatusIsWrittenSparingly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(second int, s *table.ServerReport)
		least   int
		most    int
	}{
		"levels change all the time": {func(i int, s *table.ServerReport) { s.LevelUs = int64(2000 + 2000*(i%2)) }, 30, 60},
		"overruns alone":             {func(i int, s *table.ServerReport) { s.Overruns = uint64(i) }, 20, 30},
		"nothing":                    {func(int, *table.ServerReport) {}, 11, 13},
	} {
		clk := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
		server := v1alpha1.RTServer{PodUID: "p", Container: "app", PeriodUs: 10_000, BudgetLowUs: 2000, BudgetHighUs: 4000}
		world := &agent.World{RTNode: &v1alpha1.RTNode{Spec: v1alpha1.RTNodeSpec{Servers: []v1alpha1.RTServer{server}}}}
		report := table.ServerReport{ID: "p/app", LevelUs: 2000, BudgetUs: 2000}
		counted := func() *agent.Counted {
			return &agent.Counted{
				Report:  table.Report{Instance: "x", Servers: []table.ServerReport{report}},
				Servers: map[string]agent.Total{"p/app": {Counts: agent.Counts{Overruns: report.Overruns}}},
			}
		}
		d := &diary{now: clk.Now}
		reporter := agent.NewReporter(d, world, counted, clk)
		for tick := range 600 { // a look every 100 ms, ten times as often as the agent's
			if tick%10 == 0 {
				c.happens(tick/10, &report)
			}
			reporter.Report(t.Context())
			clk.Step(100 * time.Millisecond)
		}
		for i := 1; i < len(d.written); i++ {
			if since := d.written[i].Sub(d.written[i-1]); since < time.Second {
				t.Errorf("%s: written again after %s", name, since)
			}
		}
		if n := len(d.written); n < c.least || n > c.most {
			t.Errorf("%s: written %d times in a minute, want %d to %d", name, n, c.least, c.most)
		}
	}
}
