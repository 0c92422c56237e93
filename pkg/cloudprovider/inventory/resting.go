package inventory

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// restProbe is how often a machine that nobody has is asked whether it is on, so that one whose power driver does
	// not work is found out before it is counted on.
	restProbe = 5 * time.Minute
	// failedProbe is the same after an answer that failed.
	failedProbe = time.Minute
)

// rest looks after a machine that nobody has: it finds out whether a NodeClaim may have it, and adopts it when its
// Node is there already.
func (c *machines) rest(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	next := c.probeRested(ctx, m)
	twin, err := c.twin(ctx, m)
	if err != nil {
		return 0, err
	}
	adoption := verdict{}
	if w.node != nil && m.DeletionTimestamp.IsZero() && availability(m) == v1alpha1.MachineOffered && twin == "" {
		if adoption, err = c.adoption(ctx, m, w.node); err != nil {
			return 0, err
		}
	}
	now := c.Clock.Now()
	v := judged(m, facts{twin: twin, joined: w.node != nil, adoption: adoption, now: now})
	setAvailable(m, now, v)
	if until := m.Status.QuarantinedUntil; until != nil && until.After(now) {
		next = min(next, until.Sub(now))
	}
	return next, nil
}

// probeRested asks for the power when it is time to, and returns when it is the next time. Nobody may count on a
// machine that is out of service, so nobody asks it.
func (c *machines) probeRested(ctx context.Context, m *Machine) time.Duration {
	if availability(m) == v1alpha1.MachineOutOfService || !m.DeletionTimestamp.IsZero() {
		return restProbe
	}
	every := restProbe
	if !conditionTrue(m, v1alpha1.ConditionMachinePower) && m.Status.ObservedGeneration == m.Generation {
		every = c.failedProbe(m)
	}
	if wait := c.untilProbe(m, every); wait > 0 && m.Status.ObservedGeneration == m.Generation {
		return wait
	}
	if c.probe(ctx, m) != nil {
		return c.failedProbe(m)
	}
	return restProbe
}

func (c *machines) failedProbe(m *Machine) time.Duration {
	if reasonOf(m, v1alpha1.ConditionMachinePower) == v1alpha1.ReasonCredentialsRefused {
		return refusedRetry
	}
	return failedProbe
}

// verdict is whether a machine is available; the reason says which.
type verdict struct{ reason, message string }

// facts are what availability depends on beside the machine.
type facts struct {
	twin     string  // what another machine has in common with it and must not
	joined   bool    // its Node is there
	adoption verdict // and what that leads to
	now      time.Time
}

// judged decides whether a machine that nobody has is available. The first reason against it is given.
func judged(m *Machine, f facts) verdict {
	until := m.Status.QuarantinedUntil
	switch {
	case !m.DeletionTimestamp.IsZero():
		return verdict{v1alpha1.ReasonMachineDeleting, "the InventoryMachine is being deleted"}
	case f.twin != "":
		return verdict{v1alpha1.ReasonMachineInvalid, f.twin}
	case availability(m) == v1alpha1.MachineOutOfService:
		return verdict{v1alpha1.ReasonMachineOutOfService, "spec.availability is OutOfService"}
	case availability(m) == v1alpha1.MachineWithheld:
		return verdict{v1alpha1.ReasonMachineWithheld, "spec.availability is Withheld"}
	case f.joined:
		return f.adoption
	case until != nil && until.After(f.now):
		return verdict{v1alpha1.ReasonMachineQuarantined, fmt.Sprintf("%d failures in a row; not offered until %s: %s",
			m.Status.Failures, until.UTC().Format(time.RFC3339), m.Status.LastFailure)}
	case !conditionTrue(m, v1alpha1.ConditionMachinePower):
		return verdict{v1alpha1.ReasonMachinePowerFailed, messageOf(m, v1alpha1.ConditionMachinePower)}
	}
	return verdict{v1alpha1.ReasonMachineFree, "the machine waits for a NodeClaim"}
}

// twin names what the machine has in common with an older one that can be one machine's only; empty when nothing.
func (c *machines) twin(ctx context.Context, m *Machine) (string, error) {
	list := &v1alpha1.InventoryMachineList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing machines: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == m.Name || !older(other, m) {
			continue
		}
		if nodeName(other) == nodeName(m) {
			return fmt.Sprintf("nodeName is %q, as that of machine %q; each machine needs a name of its own", nodeName(m), other.Name), nil
		}
		if shared := sharedPower(m, other); shared != "" {
			return shared, nil
		}
	}
	return "", nil
}

func older(a, b *Machine) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}
