package controllers

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpenterdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// newQueue is the orchestration queue, which asks Karpenter's what it does to nodes.
func newQueue(op *operator.Operator, provider cloudprovider.CloudProvider, cluster *state.Cluster, disruptions *karpenterdisruption.Queue, o Options) (*orchestration.Queue, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("asking for the host's name: %w", err)
	}
	return orchestration.New(orchestration.Dependencies{
		Clock:    op.Clock,
		Client:   op.GetClient(),
		Reader:   op.GetAPIReader(),
		Recorder: recorder{op.EventRecorder},
		Nodes:    &disrupted{client: op.GetClient(), provider: provider, cluster: cluster, queue: disruptions, clock: op.Clock},
		Lease:    o.Lease,
		Identity: host + "_" + string(uuid.NewUUID()),
		Options:  o.Queue,
	})
}

// recorder hands Events to Karpenter's, which leaves equal ones out.
type recorder struct{ karpenterevents.Recorder }

// Publish implements orchestration.Recorder.
func (r recorder) Publish(list ...events.Event) {
	for _, e := range list {
		r.Recorder.Publish(karpenterevents.Event{
			InvolvedObject: e.Object, Type: e.Type, Reason: e.Reason, Message: e.Message, DedupeValues: e.Dedupe,
		})
	}
}

// disrupted is what Karpenter does to nodes.
type disrupted struct {
	client   client.Client
	provider cloudprovider.CloudProvider
	cluster  *state.Cluster
	queue    *karpenterdisruption.Queue
	clock    clock.Clock
}

// Disrupted implements orchestration.Nodes.
func (d *disrupted) Disrupted(name string) string {
	for node := range d.cluster.Nodes() {
		if node.Name() != name {
			continue
		}
		switch {
		case d.queue.HasAny(node.ProviderID()):
			return "is being replaced or closed by a disruption"
		case node.MarkedForDeletion():
			return "is being closed"
		}
		return ""
	}
	return ""
}

// Allowed implements orchestration.Nodes.
func (d *disrupted) Allowed(ctx context.Context) (map[string]orchestration.PoolAllowance, error) {
	pools, err := nodepoolutils.ListManaged(ctx, d.client, d.provider)
	if err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	return allowed(d.clock, pools, d.cluster), nil
}

// allowed is what Karpenter's loop reckons, but that less than nothing is left where more nodes go than may.
func allowed(clk clock.Clock, pools []*karpenterv1.NodePool, cluster *state.Cluster) map[string]orchestration.PoolAllowance {
	nodes, disrupting := karpenterdisruption.NodePoolStats(cluster, disruption.Reason)
	out := map[string]orchestration.PoolAllowance{}
	for _, pool := range pools {
		out[pool.Name] = orchestration.PoolAllowance{
			Nodes:   pool.MustGetAllowedDisruptions(clk, nodes[pool.Name], disruption.Reason) - disrupting[pool.Name],
			Invalid: disruption.InvalidBudget(pool, clk, disruption.Reason),
		}
	}
	return out
}

// LeaseOf is the Lease of the queue beside that of the leader.
func LeaseOf(leader types.NamespacedName) types.NamespacedName {
	leader.Name += "-queue"
	return leader
}
