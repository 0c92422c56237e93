package agent

import (
	"context"
	"sync/atomic"

	"github.com/go-logr/logr"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// presser measures how busy the node is.
type presser struct {
	monitor *pressure.Monitor
	log     logr.Logger
	now     atomic.Pointer[pressure.State]
	failed  bool
}

func newPressure(e Environment, machine host.Host) (*presser, error) {
	rule := pressure.Rule{
		BusyPercent: int32(e.BusyPercent), BusyFor: e.BusyAfter, CalmPercent: int32(e.BusyPercent), CalmFor: e.CalmAfter,
	}
	monitor, err := pressure.New(machine, rule, e.Clock)
	if err != nil {
		return nil, err
	}
	return &presser{monitor: monitor, log: e.Log.WithName("pressure")}, nil
}

// Name implements Service.
func (p *presser) Name() string { return "pressure" }

// Now is the last measurement.
func (p *presser) Now() pressure.State {
	if s := p.now.Load(); s != nil {
		return *s
	}
	return pressure.State{}
}

// Run measures once a second until ctx ends.
func (p *presser) Run(ctx context.Context) error {
	p.monitor.Run(ctx, pollEvery, func(s pressure.State, err error) {
		if err != nil && !p.failed {
			p.log.Error(err, "measuring how busy the node is; trying on")
		}
		p.failed = err != nil
		p.now.Store(&s)
	})
	return nil
}
