package optimizer

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/mainspring-rt/mainspring/pkg/allocation"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// readingAge is for how long the controllers of the package judge by one reading: it is the same for all of them.
const readingAge = 5 * time.Second

// Readings reads which machines NodePools may open, and what all nodes and pods cost and draw, for all controllers of
// the package. It is safe for concurrent use.
type Readings struct {
	Client client.Client
	// CloudProvider is the one whose prices are dollars: with NodeOverlays, without policies.
	CloudProvider cloudprovider.CloudProvider
	Clock         clock.PassiveClock

	mu                    sync.Mutex
	market                market
	fleet                 []counted
	marketRead, fleetRead time.Time
	packing               *kcloudv1alpha1.Packing
}

// counted is a node, and what each pod on it and what is idle costs and draws.
type counted struct {
	node
	name string
	spot bool
	// nodePool is what its label says.
	nodePool string
	labels   map[string]string
	shares   []allocation.Share // of node.pods
	idle     allocation.Share
}

// readMarket returns the machines that NodePools may open.
func (r *Readings) readMarket(ctx context.Context) (market, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.currentMarket(ctx)
}

// currentMarket reads the market where the last reading is old. The caller holds the lock.
func (r *Readings) currentMarket(ctx context.Context) (market, error) {
	if now := r.Clock.Now(); r.marketRead.IsZero() || now.Sub(r.marketRead).Abs() >= readingAge {
		m, err := readMarket(ctx, r.Client, r.CloudProvider)
		if err != nil {
			return market{}, err
		}
		r.market, r.marketRead = m, now
	}
	return r.market, nil
}

// readFleet returns all nodes with their pods. The caller changes nothing of them.
func (r *Readings) readFleet(ctx context.Context) ([]counted, market, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := r.currentMarket(ctx)
	if err != nil {
		return nil, market{}, err
	}
	if now := r.Clock.Now(); r.fleetRead.IsZero() || now.Sub(r.fleetRead).Abs() >= readingAge {
		fleet, err := readFleet(ctx, r.Client, m)
		if err != nil {
			return nil, market{}, err
		}
		r.fleet, r.fleetRead = fleet, now
	}
	return r.fleet, m, nil
}

func readFleet(ctx context.Context, c client.Reader, m market) ([]counted, error) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := c.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	if err := c.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	on := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && !pod.IsTerminal(p) {
			on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
		}
	}
	fleet := make([]counted, len(nodes.Items))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		k := counted{
			name: n.Name, spot: n.Labels[karpenterv1.CapacityTypeLabelKey] == karpenterv1.CapacityTypeSpot,
			nodePool: n.Labels[karpenterv1.NodePoolLabelKey], labels: n.Labels,
		}
		k.node = newNode(n, on[n.Name], m)
		k.shares, k.idle = k.Shares(k.requests())
		fleet[i] = k
	}
	return fleet, nil
}

// keepPacking keeps how far the fleet is from the cheapest packing; nil: that is not known.
func (r *Readings) keepPacking(p *kcloudv1alpha1.Packing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.packing = p
}

// readPacking returns the last one that is known; nil where that is too long ago.
func (r *Readings) readPacking() *kcloudv1alpha1.Packing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packing == nil || r.Clock.Since(r.packing.Time.Time) > packingAge {
		return nil
	}
	return r.packing.DeepCopy()
}
