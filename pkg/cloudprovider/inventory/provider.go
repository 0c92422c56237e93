// Package inventory opens and closes real machines: those that InventoryMachine objects describe, switched on and
// off through their power drivers.
//
// The record of who uses a machine is on the InventoryMachine's status, and it is written before anything is done:
// Create claims a free machine for a NodeClaim, by UID and with an optimistic lock, and returns its ID at once; Delete
// marks the claim as ending. A controller of machines does the rest, one step per reconcile, each of which may be
// repeated: it switches on, waits for the Node, switches off, and frees the machine when it is off and the NodeClaim
// gone. So the process may die anywhere: what is recorded is continued, and nothing is switched off that is claimed
// by another.
//
// Machines that are alike are an instance type with one reserved offering for each price, whose capacity is the number
// of free ones; so the scheduler never plans more nodes than there are machines.
package inventory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

// Dialer makes the power driver of a machine. power.Dialer is the one.
type Dialer interface {
	Dial(ctx context.Context, machine string, spec PowerSpec) (power.Driver, error)
}

// Options are what a Provider is made of. All fields are required.
type Options struct {
	// Client reads from a cache and writes to the API server. Its scheme knows Karpenter's types and ours.
	Client client.Client
	// Reader reads from the API server itself: decisions about power are made on what is, not on what was.
	Reader client.Reader
	// Clock tells when something has taken too long.
	Clock clock.Clock
	// Recorder takes Events.
	Recorder events.Recorder
	// Dialer makes power drivers.
	Dialer Dialer
	// Labels are the keys of spec.labels that NodePools and pods may select machines by. Karpenter must know them as
	// well-known labels.
	Labels []string
	// PowerTimeout bounds each call of a power driver.
	PowerTimeout time.Duration
	// Quarantine is how long a machine that has failed is not offered; it doubles with each further failure in a row,
	// up to 64 times as long.
	Quarantine time.Duration
	// RepairToleration is how long a Node may be unhealthy before its machine is rebooted.
	RepairToleration time.Duration
}

// Provider is the inventory as a cloud. It is safe for concurrent use.
type Provider struct {
	Options
	offer  *offer
	claims sync.Mutex                  // one Create at a time
	prices cloudprovider.CloudProvider // what Create chooses from
}

var _ cloudprovider.CloudProvider = (*Provider)(nil)

// New returns the inventory.
func New(o Options) *Provider {
	o.Dialer = metered{o.Dialer}
	p := &Provider{Options: o, offer: newOffer(o.Labels)}
	p.prices = p
	return p
}

// LaunchAtPricesOf makes Create choose among the instance types of view, at its prices. The assembly passes the
// outermost decorator, so that a machine is launched at the price that it was planned at. Call it before any
// controller runs.
func (p *Provider) LaunchAtPricesOf(view cloudprovider.CloudProvider) { p.prices = view }

// Controllers are the loops that make the inventory act. They run beside Karpenter's.
func (p *Provider) Controllers() []controller.Controller {
	return []controller.Controller{&machines{Options: p.Options, names: p.offer.names}, &nodeClasses{client: p.Client, clock: p.Clock, names: p.offer.names}}
}

// Name of the provider.
func (p *Provider) Name() string { return "inventory" }

// GetSupportedNodeClasses returns InventoryNodeClass.
func (p *Provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&nodeclass.InventoryNodeClass{}}
}

// replaceTolerance is how many times as long a Node may be unhealthy before it is replaced as before it is rebooted.
const replaceTolerance = 6

// RepairPolicies reboot a machine whose kubelet is silent or unwell, without draining: there may be no other machine,
// and a silent kubelet evicts nothing. A condition without a reason has the node replaced.
func (p *Provider) RepairPolicies() []cloudprovider.RepairPolicy {
	reboot := func(status corev1.ConditionStatus) cloudprovider.RepairPolicy {
		return cloudprovider.RepairPolicy{
			ConditionType: corev1.NodeReady, ConditionStatus: status, ReasonRegex: ".",
			TolerationDuration: p.RepairToleration, TerminationGracePeriod: ptr.To(time.Duration(0)), Priority: 10,
			Action: cloudprovider.RebootNode,
		}
	}
	return []cloudprovider.RepairPolicy{
		reboot(corev1.ConditionUnknown),
		reboot(corev1.ConditionFalse),
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, TolerationDuration: replaceTolerance * p.RepairToleration, Action: cloudprovider.ReplaceNode},
	}
}

// nodeClassOf reads the node class that a NodePool or NodeClaim refers to; nil when it is not there.
func (p *Provider) nodeClassOf(ctx context.Context, ref *karpv1.NodeClassReference) (*nodeclass.InventoryNodeClass, error) {
	if ref == nil || ref.Kind != nodeclass.Kind {
		return nil, nil
	}
	class := &nodeclass.InventoryNodeClass{}
	if err := p.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, class); err != nil {
		return nil, client.IgnoreNotFound(wrapped("resolving node class", err))
	}
	return class, nil
}

func wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
