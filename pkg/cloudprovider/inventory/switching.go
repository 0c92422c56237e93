package inventory

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

const (
	// firstRetry is the pause after the first attempt to switch; it doubles up to lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
	// refusedRetry is the pause after an error that needs a person: attempts with a wrong password lock accounts.
	refusedRetry = 5 * time.Minute
)

// action switches a machine that is in state; it returns whether there was anything to switch.
type action func(ctx context.Context, driver power.Driver, state power.State) (bool, error)

// switching asks for the machine's state and acts on it, and records both.
func (c *machines) switching(ctx context.Context, m *Machine, act action) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.PowerTimeout)
	defer cancel()
	driver, err := c.ask(ctx, m)
	acted := err != nil // a failed attempt counts too
	if err == nil {
		acted, err = c.act(ctx, m, driver, act)
		c.judge(m, err)
	}
	now := metav1.NewTime(c.Clock.Now())
	m.Status.Claim.LastAttempt = &now
	if acted {
		m.Status.Claim.Attempts++
	}
	return err
}

func (c *machines) act(ctx context.Context, m *Machine, driver power.Driver, act action) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.PowerTimeout)
	defer cancel()
	return act(ctx, driver, m.Status.Power)
}

// probe asks for the machine's state and records it.
func (c *machines) probe(ctx context.Context, m *Machine) error {
	_, err := c.ask(ctx, m)
	return err
}

// ask makes the driver and asks it for the machine's state.
func (c *machines) ask(ctx context.Context, m *Machine) (power.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, c.PowerTimeout)
	defer cancel()
	state := v1alpha1.PowerUnknown
	driver, err := c.Dialer.Dial(ctx, m.Name, m.Spec.Power)
	if err == nil {
		state, err = driver.State(ctx)
	}
	setPower(m, state, c.Clock.Now())
	c.judge(m, err)
	return driver, err
}

// judge sets condition PowerDriverReady by what the driver has answered.
func (c *machines) judge(m *Machine, err error) {
	reason, message := v1alpha1.ReasonPowerAnswering, "the power driver answers"
	switch {
	case errors.Is(err, power.ErrCredentials):
		reason = v1alpha1.ReasonCredentialsRefused
	case errors.Is(err, power.ErrConfig):
		reason = v1alpha1.ReasonPowerMisconfigured
	case errors.Is(err, power.ErrNoState):
		reason = v1alpha1.ReasonPowerStateMissing
	case err != nil:
		reason = v1alpha1.ReasonPowerUnreachable
	}
	if err != nil {
		message = truncated(err.Error())
	}
	setCondition(m, metav1.Condition{
		Type: v1alpha1.ConditionMachinePower, Status: statusOf(err == nil), Reason: reason, Message: message,
	}, c.Clock.Now())
}

// untilNext is how long to wait before the machine of a claim is switched again.
func (c *machines) untilNext(m *Machine) time.Duration {
	claim := m.Status.Claim
	if claim.LastAttempt == nil {
		return 0
	}
	return claim.LastAttempt.Add(retryPause(m)).Sub(c.Clock.Now())
}

// retryPause follows an attempt.
func retryPause(m *Machine) time.Duration {
	switch reasonOf(m, v1alpha1.ConditionMachinePower) {
	case v1alpha1.ReasonCredentialsRefused, v1alpha1.ReasonPowerMisconfigured:
		return refusedRetry
	}
	return min(firstRetry<<min(max(m.Status.Claim.Attempts-1, 0), maxDoublings), lastRetry)
}

// untilProbe is how long to wait before the machine's state is asked for again, when it is to be every so often.
func (c *machines) untilProbe(m *Machine, every time.Duration) time.Duration {
	if m.Status.PowerTime == nil {
		return 0
	}
	return m.Status.PowerTime.Add(every).Sub(c.Clock.Now())
}

func setPower(m *Machine, state power.State, now time.Time) {
	t := metav1.NewTime(now)
	m.Status.Power, m.Status.PowerTime = state, &t
}
