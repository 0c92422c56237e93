package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpenterprovisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
)

// calibration holds nodes back until their agents have measured.
func calibration(op *operator.Operator, provider cloudprovider.CloudProvider, store *rtstate.Store, timeout time.Duration) cloudprovider.NodeLifecycleHook {
	return provisioning.NewCalibration(provisioning.CalibrationDependencies{
		Clock: op.Clock, Client: op.GetClient(), Recorder: op.EventRecorder, Provider: provider, Store: store, Timeout: timeout,
	})
}

// opening are what nodes are opened with.
type opening struct {
	Options
	op       *operator.Operator
	provider cloudprovider.CloudProvider
	cluster  *state.Cluster
	store    *rtstate.Store
}

// withOpening has the queue's actions that open nodes done, on the provisioner of the list, the nodes looked after, and
// headroom kept.
func (o opening) withOpening(ctx context.Context, list []controller.Controller, queue *orchestration.Queue) ([]controller.Controller, error) {
	provisioner, ok := find[*karpenterprovisioning.Provisioner](list)
	if !ok {
		return nil, fmt.Errorf("assembling controllers: Karpenter's list has no *provisioning.Provisioner")
	}
	queue.Handle(rules.OpenNode, provisioning.NewOpenNode(provisioning.Dependencies{
		Clock: o.op.Clock, Client: o.op.GetClient(), Reader: o.op.GetAPIReader(), Provider: o.provider,
		Provisioner: provisioner, Cluster: o.cluster, Store: o.store,
	}))
	return append(list, provisioning.NewKeeper(provisioning.KeeperDependencies{
		Clock: o.op.Clock, Client: o.op.GetClient(), Reader: o.op.GetAPIReader(), Cluster: o.cluster, Store: o.store,
	}), provisioning.NewHeadroom(provisioning.HeadroomDependencies{
		Client: o.op.GetClient(), Recorder: o.op.EventRecorder, Namespace: o.Lease.Namespace, Granularity: o.Realtime.Granularity,
		Buffers: options.FromContext(ctx).FeatureGates.CapacityBuffer,
	})), nil
}
