// Package disruption builds the controller that closes and replaces nodes. The mechanics are
// Karpenter's: its Queue, its candidate search, its budgets. What is ours is the list of methods
// the loop tries, in order, on the queue and provisioner that every other controller shares.
package disruption

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/cost"
)

// Dependencies are the collaborators that disruption shares with the rest of the controllers.
// All are required.
type Dependencies struct {
	Clock         clock.Clock
	Client        client.Client
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Cluster       *state.Cluster
	Provisioner   *provisioning.Provisioner
	// Queue is the one queue that runs commands: a second one would race it for budgets.
	Queue *disruption.Queue
	// Cost is the running price of each NodePool, the denominator of Balanced consolidation.
	Cost *cost.ClusterCost
}

// NewController returns the disruption loop on the shared queue and provisioner.
func NewController(ctx context.Context, d Dependencies) *disruption.Controller {
	return disruption.NewController(ctx, d.Clock, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Cluster, d.Queue, d.Cost,
		disruption.WithMethods(Methods(ctx, d)...))
}

// Methods lists what the loop tries, first match acts: node repair (behind its gate), emptiness,
// drift of static pools, drift, multi-node and single-node consolidation.
func Methods(ctx context.Context, d Dependencies) []disruption.Method {
	return disruption.NewMethods(ctx, d.Clock, d.Cluster, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Queue)
}
