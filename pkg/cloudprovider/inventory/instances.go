package inventory

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

// A machine exists, as Karpenter understands it, from its claim until it is off for that claim's end; and not while it
// is known to be off although it is in use.

// Get returns the machine with a provider ID, or NodeClaimNotFoundError.
func (p *Provider) Get(ctx context.Context, id string) (*karpv1.NodeClaim, error) {
	m, err := p.machine(ctx, p.Client, id)
	if err != nil {
		return nil, err
	}
	if m == nil || !exists(m) {
		return nil, gone(id)
	}
	return p.represented(m), nil
}

// List returns every machine that exists.
func (p *Provider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	list := &v1alpha1.InventoryMachineList{}
	if err := p.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	var found []*karpv1.NodeClaim
	for i := range list.Items {
		if exists(&list.Items[i]) {
			found = append(found, p.represented(&list.Items[i]))
		}
	}
	return found, nil
}

// exists tells whether Karpenter is to know of the machine.
func exists(m *Machine) bool {
	claim := m.Status.Claim
	switch {
	case claim == nil || claim.Stage == v1alpha1.StageStopped:
		return false
	case claim.Stage == v1alpha1.StageInUse:
		return m.Status.Power != v1alpha1.PowerOff
	}
	return true
}

func (p *Provider) represented(m *Machine) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Claim.NodeClaim}}
	result := p.launched(claim, m)
	result.CreationTimestamp = m.Status.Claim.Time
	return result
}

// Delete marks the NodeClaim's machine as one to be switched off, and returns NodeClaimNotFoundError when it is. A
// machine that another NodeClaim has is not touched.
func (p *Provider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	id := claim.Status.ProviderID
	m, err := p.machine(ctx, p.Reader, id)
	if err != nil {
		return err
	}
	if m == nil || !holds(m, claim) || m.Status.Claim.Stage == v1alpha1.StageStopped {
		return gone(id)
	}
	if m.Status.Claim.Stage == v1alpha1.StageStopping {
		return nil
	}
	enter(m, v1alpha1.StageStopping, p.Clock.Now())
	if err := p.Client.Status().Update(ctx, m); err != nil {
		return fmt.Errorf("ending the use of machine %q: %w", m.Name, err)
	}
	return nil
}

// Reboot restarts the NodeClaim's machine and returns when its power driver has accepted that. What needs a person is a
// NodeRebootFailedError.
//
// An operation is on record before the machine is restarted, and is not repeated unless the driver refuses it: after a death, or a
// driver's silence, nobody knows whether the machine is booting, and a restart in the midst of that does harm. When
// it was not restarted after all its boot does not change, and Karpenter replaces the node.
func (p *Provider) Reboot(ctx context.Context, claim *karpv1.NodeClaim, operationID string) error {
	id := claim.Status.ProviderID
	m, err := p.machine(ctx, p.Reader, id)
	if err != nil {
		return err
	}
	if m == nil || !holds(m, claim) {
		return gone(id)
	}
	before := m.Status.LastReboot
	if before != nil && before.ID == operationID {
		return nil
	}
	m.Status.LastReboot = &v1alpha1.MachineReboot{ID: operationID, Time: metav1.NewTime(p.Clock.Now())}
	if err := p.Client.Status().Update(ctx, m); err != nil {
		return fmt.Errorf("recording the reboot of machine %q: %w", m.Name, err)
	}
	if err := p.restart(ctx, m); err != nil {
		return p.refused(ctx, m, before, fmt.Errorf("rebooting machine %q: %w", m.Name, err))
	}
	return nil
}

// refused takes a reboot that did not come about off the record, so that it is tried again.
func (p *Provider) refused(ctx context.Context, m *Machine, before *v1alpha1.MachineReboot, why error) error {
	if errors.Is(why, context.DeadlineExceeded) || errors.Is(why, context.Canceled) {
		return why
	}
	operation := m.Status.LastReboot.ID
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := p.Reader.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
			return client.IgnoreNotFound(err)
		}
		if m.Status.LastReboot == nil || m.Status.LastReboot.ID != operation {
			return nil
		}
		m.Status.LastReboot = before
		return p.Client.Status().Update(ctx, m)
	})
	if err != nil {
		why = errors.Join(why, fmt.Errorf("taking the reboot of machine %q off the record: %w", m.Name, err))
	}
	if power.Permanent(why) {
		return cloudprovider.NewNodeRebootFailedError(why)
	}
	return why
}

func (p *Provider) restart(ctx context.Context, m *Machine) error {
	ctx, cancel := context.WithTimeout(ctx, p.PowerTimeout)
	defer cancel()
	driver, err := p.Dialer.Dial(ctx, m.Name, m.Spec.Power)
	if err != nil {
		return err
	}
	return driver.Restart(ctx)
}

// machine reads the machine with a provider ID; nil when there is none.
func (p *Provider) machine(ctx context.Context, from client.Reader, id string) (*Machine, error) {
	name, ours := machineOf(id)
	if !ours || name == "" {
		return nil, nil
	}
	m := &Machine{}
	if err := from.Get(ctx, client.ObjectKey{Name: name}, m); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("finding machine %s: %w", id, err)
	}
	return m, nil
}

func gone(id string) error {
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("no machine %q is on for it", id))
}
