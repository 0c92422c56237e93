// Package power switches machines: through a Redfish service, a magic packet, a program or a web service.
//
// Every call is bounded by its context and says in its error, by type, whether trying again can help: a refused
// credential or a wrong setting needs a person (ErrCredentials, ErrConfig), anything else may pass. No error
// carries a secret.
package power

import (
	"context"
	"errors"
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

var (
	// ErrCredentials says that the other side refuses who we are. Trying again may lock the account.
	ErrCredentials = errors.New("credentials refused")
	// ErrConfig says that the settings cannot work: a Secret or a program is missing, or what is asked for is not offered.
	ErrConfig = errors.New("misconfigured")
	// ErrNoState says that the other side answers, and does not say whether the machine is on. It may pass, as while a controller starts.
	ErrNoState = errors.New("no power state")
)

// Permanent tells whether an error needs a person.
func Permanent(err error) bool { return errors.Is(err, ErrCredentials) || errors.Is(err, ErrConfig) }

// State is whether a machine is on.
type State = v1alpha1.MachinePowerState

// Driver switches one machine. Each call may be repeated: On for a machine that is on, and Off for one that is
// off, change nothing. A call returns when the other side has accepted it; State tells when it is done.
type Driver interface {
	// State asks whether the machine is on. A machine on its way is Unknown.
	State(ctx context.Context) (State, error)
	// On switches on.
	On(ctx context.Context) error
	// Off switches off: gracefully where the driver can, or, with force, by cutting the power.
	Off(ctx context.Context, force bool) error
	// Restart starts the machine anew; it is on.
	Restart(ctx context.Context) error
}

// Secrets reads a Secret's data by name. The error for a Secret that is not there wraps ErrConfig.
type Secrets func(ctx context.Context, name string) (map[string][]byte, error)

// Dialer makes drivers.
type Dialer struct {
	// Secrets reads credentials, anew for each driver.
	Secrets Secrets
	// ExecDirectory is the directory of the programs that may be run; empty: none.
	ExecDirectory string
}

// Dial makes the driver of a machine. It contacts nothing.
func (d Dialer) Dial(ctx context.Context, machine string, spec v1alpha1.MachinePower) (Driver, error) {
	driver, err := d.base(ctx, machine, spec)
	if err != nil {
		return nil, err
	}
	if spec.WakeOnLAN == nil {
		return driver, nil
	}
	wake, err := newWake(*spec.WakeOnLAN)
	if err != nil {
		return nil, err
	}
	return &woken{Driver: driver, wake: wake}, nil
}

func (d Dialer) base(ctx context.Context, machine string, spec v1alpha1.MachinePower) (Driver, error) {
	switch {
	case spec.Redfish != nil:
		return d.redfish(ctx, *spec.Redfish)
	case spec.Exec != nil:
		return d.exec(ctx, machine, *spec.Exec)
	case spec.Webhook != nil:
		return d.webhook(ctx, machine, *spec.Webhook)
	}
	return nil, fmt.Errorf("%w: spec.power must name one of redfish, exec and webhook", ErrConfig)
}

// key reads one key of a Secret.
func (d Dialer) key(ctx context.Context, ref v1alpha1.SecretRef, key string) (string, error) {
	data, err := d.Secrets(ctx, ref.Name)
	if err != nil {
		return "", err
	}
	value, ok := data[key]
	if !ok || len(value) == 0 {
		return "", fmt.Errorf("%w: Secret %q has no key %s", ErrConfig, ref.Name, key)
	}
	return string(value), nil
}

// woken is a driver whose machine is switched on by a magic packet.
type woken struct {
	Driver
	wake *wake
}

func (w *woken) On(ctx context.Context) error { return w.wake.send(ctx) }
