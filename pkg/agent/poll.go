package agent

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Counted is the fast path's last report with counters that never go back. It never changes.
type Counted struct {
	Report table.Report
	// Servers by ID, with their totals.
	Servers map[string]Total
	// All is the sum over all servers that ever were.
	All Counts
	// Events, Lost and Unseen in all.
	Events, Lost, Unseen uint64
	// Detect and React in all.
	Detect, React table.Histogram
	// At is when the report was pulled.
	At time.Time
	// Err is why the fast path does not answer now; the rest is what it last said.
	Err error
}

// Total is what a server has counted in all.
type Total struct {
	Counts
	// LastOverrun is zero when there was none.
	LastOverrun time.Time
}

const (
	// pollEvery is how often the fast path's report is pulled.
	pollEvery = time.Second
	// pollTimeout bounds one pull.
	pollTimeout = 5 * time.Second
	// ledgerEvery is how often the counters are kept on disk, when they have changed.
	ledgerEvery = 10 * time.Second
	ledgerFile  = "counters.json"
)

// poller pulls the report.
type poller struct {
	fast      FastPath
	world     func() *World
	clock     clock.WithTicker
	log       logr.Logger
	stateDir  string
	listeners []func(*Counted) // called after each pull; they must not block

	ledger  *ledger
	written time.Time
	dirty   bool
	counted atomic.Pointer[Counted]
}

// Name implements Service.
func (p *poller) Name() string { return "poll" }

// Counted is what was last pulled; nil before the first answer.
func (p *poller) Counted() *Counted { return p.counted.Load() }

// Init reads the counters that an earlier agent kept. Without them the totals begin where
// RTNode.status ends.
func (p *poller) Init(context.Context) error {
	var err error
	if p.ledger, err = readLedger(p.path()); err != nil {
		p.log.Error(err, "counting anew from what RTNode.status says")
	}
	return nil
}

func (p *poller) path() string { return filepath.Join(p.stateDir, ledgerFile) }

// Run pulls every second until ctx ends.
func (p *poller) Run(ctx context.Context) error {
	ticker := p.clock.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		p.poll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Shutdown keeps the counters for the next agent.
func (p *poller) Shutdown(context.Context) error {
	if !p.dirty {
		return nil
	}
	return p.ledger.write(p.path())
}

func (p *poller) poll(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	report, err := p.fast.Report(asked)
	if ctx.Err() != nil {
		return
	}
	before := p.counted.Load()
	if err != nil {
		p.failed(before, err)
		return
	}
	if before != nil && before.Err != nil {
		p.log.Info("the fast path answers", "instance", report.Instance)
	}
	world := p.world()
	p.ledger.follow(report, reportedBy(world), keptBy(world))
	p.dirty = true
	p.publish(p.ledger.counted(report, p.clock.Now()))
	p.keep()
}

// failed keeps what was last said, with the reason why it is old.
func (p *poller) failed(before *Counted, err error) {
	next := Counted{At: p.clock.Now(), Err: err}
	if before != nil {
		next = *before
		next.Err = err
	}
	if before == nil || before.Err == nil {
		p.log.Error(err, "reading the fast path's report; trying on")
	}
	p.publish(&next)
}

func (p *poller) publish(c *Counted) {
	p.counted.Store(c)
	for _, tell := range p.listeners {
		tell(c)
	}
}

// keep writes the counters now and then.
func (p *poller) keep() {
	now := p.clock.Now()
	if now.Sub(p.written) < ledgerEvery {
		return
	}
	p.written = now
	if err := p.ledger.write(p.path()); err != nil {
		p.log.Error(err, "an agent that follows may count less")
		return
	}
	p.dirty = false
}

func (l *ledger) counted(r table.Report, now time.Time) *Counted {
	out := &Counted{
		Report: r, Servers: make(map[string]Total, len(l.Servers)), Events: l.Events.Total, Lost: l.Lost.Total, Unseen: l.Unseen.Total,
		Detect: l.Detect.Total, React: l.React.Total, At: now, All: l.Gone,
	}
	for id, e := range l.Servers {
		total := Total{Counts: e.Total}
		if e.LastOverrun > 0 {
			total.LastOverrun = time.Unix(0, e.LastOverrun)
		}
		out.Servers[id], out.All = total, out.All.plus(e.Total)
	}
	return out
}

// reportedBy is what RTNode.status says of servers, by ID; nil while it is not known.
func reportedBy(w *World) map[string]v1alpha1.RTServerStatus {
	if w == nil || w.RTNode == nil {
		return nil
	}
	out := make(map[string]v1alpha1.RTServerStatus, len(w.RTNode.Status.Servers))
	for _, s := range w.RTNode.Status.Servers {
		out[statusID(s)] = s
	}
	return out
}

// keptBy says which servers are not forgotten though the fast path does not have them: those of the spec, and
// all while the spec is not known.
func keptBy(w *World) func(string) bool {
	if w == nil {
		return func(string) bool { return true }
	}
	ids := map[string]bool{}
	if w.RTNode != nil {
		for _, s := range w.RTNode.Spec.Servers {
			ids[idOf(s)] = true
		}
	}
	return func(id string) bool { return ids[id] }
}
