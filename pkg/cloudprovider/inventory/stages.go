package inventory

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

const (
	defaultBootTimeout   = 10 * time.Minute
	defaultShutdownGrace = time.Minute
	// silentProbe is how often a machine in use is asked whether it is on while its kubelet is silent.
	silentProbe = 30 * time.Second
)

// start gets the machine's Node to be Ready: it switches on what is off, restarts once what is on without a Node, since
// a kubelet joins when it starts, and gives up when the time for booting is over.
func (c *machines) start(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	now := c.Clock.Now()
	switch {
	case w.nodeClaim == nil:
		c.leave(m, "its NodeClaim is gone")
		return 0, nil
	case w.nodeClaim.Status.ProviderID != "" && w.nodeClaim.Status.ProviderID != ProviderID(m.Name):
		c.leave(m, "its NodeClaim has machine "+w.nodeClaim.Status.ProviderID)
		return 0, nil
	case !m.DeletionTimestamp.IsZero():
		return 0, c.endNodeClaim(ctx, w.nodeClaim)
	case !w.nodeClaim.DeletionTimestamp.IsZero():
		return 0, nil // Karpenter calls Delete, or the NodeClaim goes
	}
	if w.node != nil {
		if !isNodeOf(m, w.node) {
			c.fail(m, w, fmt.Sprintf("Node %q has provider ID %q; it must be %q", w.node.Name, w.node.Spec.ProviderID, ProviderID(m.Name)))
			return 0, nil
		}
		if err := c.identify(ctx, m, w.node); err != nil {
			return 0, err
		}
		if ready(w.node) {
			c.joined(m)
			return 0, nil
		}
	}
	if left := bootTimeout(m) - now.Sub(m.Status.Claim.Time.Time); left <= 0 {
		c.fail(m, w, fmt.Sprintf("no Ready Node %q within %s of the claim; power is %s", nodeName(m), bootTimeout(m), m.Status.Power))
		return 0, nil
	}
	return c.startPower(ctx, m, w)
}

// startPower asks for the machine's state when it is time to, and switches on.
func (c *machines) startPower(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	left := bootTimeout(m) - c.Clock.Since(m.Status.Claim.Time.Time)
	if wait := c.untilNext(m); wait > 0 {
		return min(wait, left), nil
	}
	if m.Status.Claim.Found == "" && c.probe(ctx, m) == nil {
		m.Status.Claim.Found = m.Status.Power
		return 0, nil // the status is written, which leads to the next step
	}
	leftOn := m.Status.Claim.Found == v1alpha1.PowerOn && m.Status.Claim.Attempts == 0 && w.node == nil
	err := c.switching(ctx, m, func(ctx context.Context, driver power.Driver, state power.State) (bool, error) {
		switch {
		case state == v1alpha1.PowerOff:
			return true, driver.On(ctx)
		case state == v1alpha1.PowerOn && leftOn:
			return true, driver.Restart(ctx)
		}
		return false, nil
	})
	if power.Permanent(err) {
		c.fail(m, w, err.Error())
		return 0, nil
	}
	return min(c.untilNext(m), left), nil
}

// joined records that the machine has become a Ready Node.
func (c *machines) joined(m *Machine) {
	enter(m, v1alpha1.StageInUse, c.Clock.Now())
	setPower(m, v1alpha1.PowerOn, c.Clock.Now())
	m.Status.Failures, m.Status.QuarantinedUntil, m.Status.LastFailure = 0, nil, ""
	c.Recorder.Publish(joinedEvent(m))
}

// identify gives a Node that has joined without provider ID the machine's. Once set it cannot be changed.
func (c *machines) identify(ctx context.Context, m *Machine, node *corev1.Node) error {
	if node.Spec.ProviderID != "" {
		return nil
	}
	changed := node.DeepCopy()
	changed.Spec.ProviderID = ProviderID(m.Name)
	return client.IgnoreNotFound(wrapped("setting provider ID of Node", c.Client.Patch(ctx, changed, client.MergeFrom(node))))
}

// fail gives a machine up that did not become a Node: it is switched off, kept from NodeClaims for a while, longer each
// time, and its NodeClaim ended, so that Karpenter plans anew.
func (c *machines) fail(m *Machine, w world, why string) {
	now := c.Clock.Now()
	m.Status.Failures++
	until := metav1.NewTime(now.Add(quarantine(c.Quarantine, m.Status.Failures)))
	m.Status.QuarantinedUntil = &until
	m.Status.LastFailure = truncated(why)
	enter(m, v1alpha1.StageStopping, now)
	c.Recorder.Publish(failedEvents(m, w.nodeClaim)...)
}

// maxDoublings bounds how long a machine is quarantined.
const maxDoublings = 6

// quarantine is how long a machine is not offered after so many failures in a row.
func quarantine(first time.Duration, failures int32) time.Duration {
	return first << min(max(failures-1, 0), maxDoublings)
}

// leave ends a use that no NodeClaim asks for any more.
func (c *machines) leave(m *Machine, why string) {
	enter(m, v1alpha1.StageStopping, c.Clock.Now())
	c.Recorder.Publish(leftEvent(m, why))
}

// use watches over a machine whose Node has joined.
func (c *machines) use(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	switch {
	case w.nodeClaim == nil && w.node == nil:
		c.leave(m, "its NodeClaim and its Node are gone")
		return 0, nil
	case w.nodeClaim == nil:
		// Without its NodeClaim the Node has to go; Karpenter's finalizer drains it.
		return 0, c.endNode(ctx, w.node)
	case !m.DeletionTimestamp.IsZero(), w.node == nil:
		// A kubelet does not come back to a Node that was deleted.
		return 0, c.endNodeClaim(ctx, w.nodeClaim)
	case ready(w.node):
		if m.Status.Power != v1alpha1.PowerOn {
			setPower(m, v1alpha1.PowerOn, c.Clock.Now())
		}
		return 0, nil
	}
	if wait := c.untilProbe(m, silentProbe); wait > 0 {
		return wait, nil
	}
	// Karpenter is told by Get and List when the machine is off, and repairs one that is on.
	_ = c.probe(ctx, m) // what it found is in the status
	if m.Status.Power == v1alpha1.PowerOff && rebooting(m, c.Clock.Now()) {
		m.Status.Power = v1alpha1.PowerUnknown // on its way through a power cycle
	}
	return silentProbe, nil
}

// stop switches the machine off: gracefully first, then by cutting the power. It goes on until the machine says that
// it is off, or until someone vouches for it.
func (c *machines) stop(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	if err := c.endNodeClaim(ctx, w.nodeClaim); err != nil {
		return 0, err
	}
	if availability(m) == v1alpha1.MachineOutOfService {
		enter(m, v1alpha1.StageStopped, c.Clock.Now())
		return 0, nil
	}
	if wait := c.untilNext(m); wait > 0 {
		return wait, nil
	}
	force := c.Clock.Since(m.Status.Claim.StageTime.Time) >= shutdownGrace(m)
	err := c.switching(ctx, m, func(ctx context.Context, driver power.Driver, state power.State) (bool, error) {
		if state == v1alpha1.PowerOff {
			return false, nil
		}
		return true, driver.Off(ctx, force)
	})
	if err != nil {
		c.Recorder.Publish(stuckEvents(m, w.nodeClaim, err)...)
		return c.untilNext(m), nil
	}
	if m.Status.Power == v1alpha1.PowerOff {
		enter(m, v1alpha1.StageStopped, c.Clock.Now())
		return 0, nil
	}
	return c.untilNext(m), nil
}

// release frees a machine that is off, when its NodeClaim and its Node are gone: an ID must not name two NodeClaims'
// machines at once, nor a Node stand for a machine that runs for another.
func (c *machines) release(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	if w.nodeClaim != nil {
		return 0, c.endNodeClaim(ctx, w.nodeClaim)
	}
	if w.node != nil {
		return 0, c.endNode(ctx, w.node)
	}
	m.Status.Claim = nil
	return c.rest(ctx, m, w)
}

// enter begins a stage.
func enter(m *Machine, stage v1alpha1.MachineStage, now time.Time) {
	claim := m.Status.Claim
	claim.Stage, claim.StageTime = stage, metav1.NewTime(now)
	claim.Attempts, claim.LastAttempt = 0, nil
	m.Status.Phase = phase(m)
}

// rebooting tells whether the machine may still be on its way up from a reboot.
func rebooting(m *Machine, now time.Time) bool {
	return m.Status.LastReboot != nil && now.Sub(m.Status.LastReboot.Time.Time) < bootTimeout(m)
}

func bootTimeout(m *Machine) time.Duration {
	if m.Spec.BootTimeout == nil {
		return defaultBootTimeout
	}
	return m.Spec.BootTimeout.Duration
}

func shutdownGrace(m *Machine) time.Duration {
	if r := m.Spec.Power.Redfish; r != nil && r.ShutdownGrace != nil {
		return r.ShutdownGrace.Duration
	}
	return defaultShutdownGrace
}
