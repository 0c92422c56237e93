package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

// evaluations is the provider under NodeOverlays. It notes when a caller last asked for a NodePool whose overlays were not evaluated yet, as at the start
// of a process: the provisioner leaves such a NodePool out, and decides without it that no node comes for a pod.
type evaluations struct {
	cloudprovider.CloudProvider
	clock clock.PassiveClock

	lock sync.Mutex
	last time.Time
}

// GetInstanceTypes implements cloudprovider.CloudProvider.
func (e *evaluations) GetInstanceTypes(ctx context.Context, nodePool *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types, err := e.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if cloudprovider.IsUnevaluatedNodePoolError(err) && !nodepool.IsStatic(nodePool) { // no pod waits for a static one
		e.lock.Lock()
		defer e.lock.Unlock()
		e.last = e.clock.Now()
	}
	return types, err
}

// lastMissed returns when a NodePool was last left out; zero: none ever was.
func (e *evaluations) lastMissed() time.Time {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.last
}
