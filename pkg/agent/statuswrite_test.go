package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
)

// diary notes when the status was written and the Lease renewed.
type diary struct {
	agent.API // nothing else is asked for
	now       func() time.Time
	written   []time.Time
	renewed   []time.Time
	refused   error // of the status
	unrenewed error // of the Lease
}

func (d *diary) ApplyStatus(context.Context, string, types.UID, v1alpha1.RTNodeStatus) error {
	if d.refused == nil {
		d.written = append(d.written, d.now())
	}
	return d.refused
}

func (d *diary) RenewLease(_ context.Context, l *coordinationv1.Lease) error {
	if rtNode, uid, at, ok := heartbeat.Of(l); !ok || rtNode.Name != "n" || uid != "rtnode" || !at.Time.Equal(d.now()) {
		return fmt.Errorf("a Lease of %s %s at %s", rtNode, uid, at)
	}
	if d.unrenewed == nil {
		d.renewed = append(d.renewed, d.now())
	}
	return d.unrenewed
}

// However much happens on a node, its status is written once a second at most, for counters alone every other
// second, and once a minute when nothing happens. Then the Lease shows that the agent lives.
func TestTheStatusIsWrittenSparingly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(second int, s *table.ServerReport)
		least   int
		most    int
		renewed int
	}{
		"levels change all the time": {func(i int, s *table.ServerReport) { s.LevelUs = int64(2000 + 2000*(i%2)) }, 30, 60, 0},
		"overruns alone":             {func(i int, s *table.ServerReport) { s.Overruns = uint64(i) }, 20, 30, 0},
		"nothing":                    {func(int, *table.ServerReport) {}, 1, 1, 11},
	} {
		clk := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
		server := v1alpha1.RTServer{PodUID: "p", Container: "app", PeriodUs: 10_000, BudgetLowUs: 2000, BudgetHighUs: 4000}
		world := &agent.World{RTNode: &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{UID: "rtnode"}, Spec: v1alpha1.RTNodeSpec{Servers: []v1alpha1.RTServer{server}}}}
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
		if len(d.renewed) != c.renewed {
			t.Errorf("%s: the Lease was renewed %d times in a minute, want %d", name, len(d.renewed), c.renewed)
		}
	}
}

// A Lease is renewed for a status that is true: where it cannot be written, the agent falls silent. So it does where the Lease cannot be renewed, and
// it goes on by itself. Where it may not be renewed the status says that the agent lives.
func TestTheLeaseIsRenewedForWhatIsWritten(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	world := &agent.World{RTNode: &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{UID: "rtnode"}}}
	report := table.Report{Instance: "x"}
	d := &diary{now: clk.Now}
	reporter := agent.NewReporter(d, world, func() *agent.Counted { return &agent.Counted{Report: report} }, clk)
	pass := func(seconds int) (written, renewed int) {
		t.Helper()
		d.written, d.renewed = nil, nil
		for range seconds {
			reporter.Report(t.Context())
			clk.Step(time.Second)
		}
		return len(d.written), len(d.renewed)
	}
	expect := func(what string, seconds, written, renewed int) {
		t.Helper()
		if w, r := pass(seconds); w != written || r != renewed {
			t.Errorf("%s: the status was written %d times and the Lease renewed %d times in %d s, want %d and %d", what, w, r, seconds, written, renewed)
		}
	}
	expect("at first", 1, 1, 0)
	expect("nothing happens", 15, 0, 3)
	report.Backend, d.refused = "fifo", errors.New("too large")
	expect("what is new cannot be written", 15, 0, 0)
	d.refused = nil
	expect("it can be again", 1, 1, 0)
	expect("nothing happens again", 15, 0, 3)
	d.unrenewed = errors.New("away")
	expect("the Lease cannot be renewed", 15, 0, 0)
	d.unrenewed = apierrors.NewForbidden(coordinationv1.Resource("leases"), "rtnode-n", errors.New("no right"))
	expect("the Lease may not be renewed", 15, 3, 0)
	d.unrenewed = nil
	expect("it can be renewed again", 5, 0, 1)
	world.RTNode.UID = "replaced"
	expect("another RTNode", 1, 1, 0)
}
