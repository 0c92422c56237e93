package inventory

import (
	"context"
	"errors"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// metered counts what the drivers that a dialer makes are asked.
type metered struct{ dialer Dialer }

// Dial implements Dialer. A driver that cannot be made counts as a machine whose state could not be asked.
func (d metered) Dial(ctx context.Context, machine string, spec PowerSpec) (power.Driver, error) {
	driver, err := d.dialer.Dial(ctx, machine, spec)
	if err != nil {
		return nil, tallied(metrics.PowerStatus, err)
	}
	return meter{driver}, nil
}

// meter counts what a driver is asked.
type meter struct{ driver power.Driver }

func (m meter) State(ctx context.Context) (power.State, error) {
	state, err := m.driver.State(ctx)
	return state, tallied(metrics.PowerStatus, err)
}

func (m meter) On(ctx context.Context) error { return tallied(metrics.PowerOn, m.driver.On(ctx)) }

func (m meter) Off(ctx context.Context, force bool) error {
	what := metrics.PowerOff
	if force {
		what = metrics.PowerCut
	}
	return tallied(what, m.driver.Off(ctx, force))
}

func (m meter) Restart(ctx context.Context) error {
	return tallied(metrics.PowerRestart, m.driver.Restart(ctx))
}

// tallied counts an operation and returns its error.
func tallied(what string, err error) error {
	outcome := metrics.PowerDone
	switch {
	case errors.Is(err, power.ErrCredentials):
		outcome = metrics.PowerRefused
	case errors.Is(err, power.ErrConfig):
		outcome = metrics.PowerMisconfigured
	case err != nil:
		outcome = metrics.PowerFailed
	}
	metrics.PowerOperations.WithLabelValues(what, outcome).Inc()
	return err
}

// measure what a step of a machine has come to, once that is stored.
func (c *machines) measure(before, after *Machine) {
	metrics.Machines.Set(after.Name, after.Status.Phase)
	if after.Status.Failures > before.Status.Failures {
		metrics.MachineFailures.Inc()
	}
	was, is := before.Status.Claim, after.Status.Claim
	if was != nil && is != nil && was.Stage == v1alpha1.StageStarting && is.Stage == v1alpha1.StageInUse && !is.Adopted {
		metrics.MachineJoin.Observe(max(0, c.Clock.Since(is.Time.Time).Seconds()))
	}
}
