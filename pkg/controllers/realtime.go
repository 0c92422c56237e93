package controllers

import (
	"context"

	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
)

// realtime are the controllers of real-time containers, and the one that feeds the cache they share.
func realtime(ctx context.Context, op *operator.Operator, cluster *state.Cluster, store *rtstate.Store, queue *orchestration.Queue, overlaid *evaluations, o Options) []controller.Controller {
	rearrange := rtruntime.NewRearrange(rtruntime.RearrangeDependencies{
		API: op.GetAPIReader(), Store: store, Clock: op.Clock, Granularity: o.Realtime.Granularity,
		Running:  func() []*v1alpha1.RTAction { return queue.Running(rules.Rearrange) },
		HoldsPod: queue.HoldsPod,
	})
	queue.Handle(rules.Rearrange, rearrange)
	flights := newFlights(op.GetClient(), cluster, overlaid.lastMissed, op.Clock, o.Pressure.NodeTimeout, options.FromContext(ctx).BatchMaxDuration)
	loops := rtruntime.NewControllers(rtruntime.Dependencies{
		Clock:         op.Clock,
		Client:        op.GetClient(),
		Recorder:      op.EventRecorder,
		Store:         store,
		InFlight:      flights.mayCome,
		Planned:       flights.comes,
		Placement:     &placement.Simulator{Client: op.GetClient(), Cluster: cluster, Recorder: op.EventRecorder, Clock: op.Clock},
		Actions:       queue,
		Rearrange:     rearrange,
		FreedCapacity: func() { cluster.MarkUnconsolidated() },
		Options:       o.Realtime,
	})
	return append(loops, informer.New(store))
}
