// Package simulated is a cloud without machines: Karpenter's kwok provider made durable. Nodes are
// real objects in the API server, their kubelets are simulated by kwok's controller, and everything
// else that a cloud does to its users happens: offerings run out, reservations fill up, spot
// machines are taken away after a notice, machines join late or never, kubelets die. Those faults
// are SimulatedFault objects.
//
// A machine is its NodeClaim. Create decides and returns at once, and what it decided is recorded
// by Karpenter on the NodeClaim (labels, annotations, status); the Node that joins later is built
// from that record alone. So the process may die between any two writes: nothing is launched twice,
// nothing is forgotten. Provider IDs and Node names derive from the NodeClaim's name and UID.
//
// Permissions needed beyond Karpenter's own: list, watch simulatedfaults.mckube.io and
// kwoknodeclasses.karpenter.kwok.sh; update simulatedfaults/status; create nodes; patch
// nodes/status; get, update leases in kube-node-lease.
package simulated

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// Options are what a Provider is made of. All fields but RepairToleration are required.
type Options struct {
	// Client reads from a cache and writes to the API server. Its scheme knows Karpenter's types,
	// KWOKNodeClass and SimulatedFault.
	Client client.Client
	// Clock tells when registration delays, notices and faults end.
	Clock clock.Clock
	// Recorder takes the Events of faults.
	Recorder events.Recorder
	// Catalogue tells which instance types are edge machines.
	Catalogue *catalogue.Catalogue
	// InstanceTypes on offer; InstanceTypes makes them.
	InstanceTypes []*karpcloud.InstanceType
	// Named are further instance types, which only NodePools that name them are offered; KwokInstanceTypes makes them.
	Named []*karpcloud.InstanceType
	// RepairToleration is how long a node may be unhealthy before node repair acts; 0 leaves the
	// tolerations of Karpenter's kwok provider (30 s and 10 min).
	RepairToleration time.Duration
}

// Provider is the simulated cloud. It is safe for concurrent use.
type Provider struct {
	*kwok.CloudProvider // name, node class, repair policies, boot IDs

	client           client.Client
	clock            clock.Clock
	recorder         events.Recorder
	repairToleration time.Duration
	offer            *offer
	reservations     *reservations
	faults           *faults
	kubelets         *kubelets
	own              karpcloud.CloudProvider // this provider with our knowledge of its machines
	prices           karpcloud.CloudProvider // what Create chooses from
}

var _ karpcloud.CloudProvider = (*Provider)(nil)

// New returns a simulated cloud. It reports reserved offerings that no reservation can be counted
// for.
func New(ctx context.Context, o Options) (*Provider, error) {
	capacity, err := reservedCapacity(o.InstanceTypes)
	if err != nil {
		return nil, fmt.Errorf("reading instance types: %w", err)
	}
	p := &Provider{
		CloudProvider:    kwok.NewCloudProvider(ctx, o.Client, o.InstanceTypes),
		client:           o.Client,
		clock:            o.Clock,
		recorder:         o.Recorder,
		repairToleration: o.RepairToleration,
		offer:            newOffer(o.InstanceTypes, o.Named, o.Catalogue),
		reservations:     newReservations(o.Client, capacity),
		faults:           &faults{client: o.Client, clock: o.Clock},
		kubelets:         &kubelets{client: o.Client, clock: o.Clock},
	}
	p.own = cloudprovider.Decorate(p, o.Catalogue)
	p.prices = p.own
	return p, nil
}

// LaunchAtPricesOf makes Create choose among the instance types of view, at its prices, instead of
// at those of the catalogue. The assembly passes the outermost decorator, so that a machine is launched at
// the price that it was planned at; prices decide in Create because the order of instance types in
// a NodeClaim's requirements is not kept. Call it before any controller runs.
func (p *Provider) LaunchAtPricesOf(view karpcloud.CloudProvider) {
	p.prices = view
}

// Controllers are the loops that make the simulated cloud act. They run beside Karpenter's.
func (p *Provider) Controllers() []controller.Controller {
	return []controller.Controller{
		&registrar{client: p.client, clock: p.clock, recorder: p.recorder, faults: p.faults},
		&faultController{client: p.client, clock: p.clock, recorder: p.recorder, kubelets: p.kubelets},
	}
}

// RepairPolicies are those of Karpenter's kwok provider, with our toleration when one is set.
func (p *Provider) RepairPolicies() []karpcloud.RepairPolicy {
	policies := p.CloudProvider.RepairPolicies()
	if p.repairToleration > 0 {
		for i := range policies {
			policies[i].TolerationDuration = p.repairToleration
		}
	}
	return policies
}

// GetInstanceTypes returns what is on offer to a NodePool. Edge machines are offered only to
// NodePools that name label mckube.io/hardware-class, reserved offerings only to NodePools that ask
// for capacity type reserved by name, and those of Karpenter's kwok provider that the catalogue lacks only to NodePools that name a value that only
// they have. Offerings that a Shortage strikes are unavailable, and
// reserved ones have as much capacity as is not in use. While nothing changes, the pointers are the
// same in every answer.
func (p *Provider) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	listed := p.offer.to(nodePool)
	shortages, err := p.faults.shortages(ctx, nodePoolName(nodePool))
	if err != nil {
		return nil, err
	}
	inUse := map[string]int{}
	if listed.reserved {
		if inUse, err = p.reservations.inUse(ctx); err != nil {
			return nil, err
		}
	}
	if len(shortages) == 0 && !listed.reserved {
		return listed.types, nil
	}
	return p.offer.adjusted(listed.types, shortages, inUse), nil
}

func nodePoolName(nodePool *karpv1.NodePool) string {
	if nodePool == nil {
		return ""
	}
	return nodePool.Name
}
