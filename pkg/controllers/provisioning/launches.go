package provisioning

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// The back-off of a NodePool whose machines the provider has not. The longest is short enough for alert MainspringInsufficientCapacity, which counts
// five failed launches in half an hour.
const (
	firstBackOff   = 10 * time.Second
	longestBackOff = 5 * time.Minute
	// mostPools bounds what is remembered over NodePools that come and go.
	mostPools = 4096
)

// Launches is a provider that remembers which NodePools' launches failed, so that their NodeClaims are deleted. It is safe for concurrent use. What
// it remembers ends with the process: the next one tries at once.
type Launches struct {
	cloudprovider.CloudProvider
	clock clock.Clock

	mu     sync.Mutex
	failed map[string]failedLaunches // by name of the NodePool
}

// failedLaunches are those of a NodePool in a row.
type failedLaunches struct {
	// times that a launch failed, of which those that fail together count as one.
	times int
	// next is when the next launch is due, why is the last error.
	next time.Time
	why  string
}

// NewLaunches makes one around a provider.
func NewLaunches(provider cloudprovider.CloudProvider, clk clock.Clock) *Launches {
	return &Launches{CloudProvider: provider, clock: clk, failed: map[string]failedLaunches{}}
}

// Create implements cloudprovider.CloudProvider.
func (l *Launches) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	created, err := l.CloudProvider.Create(ctx, claim)
	l.record(claim.Labels[karpv1.NodePoolLabelKey], err)
	return created, err // as it is: callers branch on its type
}

// record takes in how a launch ended. Other errors leave the NodeClaim as it is: its own loop tries again.
func (l *Launches) record(pool string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, f := l.clock.Now(), l.failed[pool]
	switch {
	case pool == "" || now.Before(f.next): // one of several at once
	case err == nil:
		delete(l.failed, pool)
	case cloudprovider.IsInsufficientCapacityError(err) || cloudprovider.IsNodeClassNotReadyError(err):
		if f.times == 0 && len(l.failed) >= mostPools {
			clear(l.failed)
		}
		l.failed[pool] = failedLaunches{times: f.times + 1, next: now.Add(backOff(f.times)), why: err.Error()}
	}
}

// backOff doubles with every failure before.
func backOff(times int) time.Duration {
	return min(firstBackOff<<min(times, 16), longestBackOff)
}

// of returns the failed launches of a NodePool; zero when the last one succeeded, or none has been tried.
func (l *Launches) of(pool string) failedLaunches {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed[pool]
}
