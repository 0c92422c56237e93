package controllers

import (
	"context"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
)

const (
	// undecided is how long a pod that the provisioner has not decided on counts as one that it will
	// open a node for. Longer than its longest batch; a cluster without NodePools never decides.
	undecided = 15 * time.Second
	// hopeful is how long a pod that was planned onto a node counts as on its way there. The
	// provisioner takes a plan back when it fails; one that it never revisits must not block others.
	hopeful = 2 * time.Minute
)

// realtime are the controllers of real-time containers, and the one that feeds the cache they share.
func realtime(op *operator.Operator, cluster *state.Cluster, store *rtstate.Store, queue *orchestration.Queue, o Options) []controller.Controller {
	rearrange := rtruntime.NewRearrange(rtruntime.RearrangeDependencies{
		API: op.GetAPIReader(), Store: store, Clock: op.Clock, Granularity: o.Realtime.Granularity,
		Running:  func() []*v1alpha1.RTAction { return queue.Running(rules.Rearrange) },
		HoldsPod: queue.HoldsPod,
	})
	queue.Handle(rules.Rearrange, rearrange)
	loops := rtruntime.NewControllers(rtruntime.Dependencies{
		Clock:         op.Clock,
		Client:        op.GetClient(),
		Recorder:      op.EventRecorder,
		Store:         store,
		InFlight:      inFlight(cluster, op.Clock, o.Pressure.NodeTimeout),
		Placement:     &placement.Simulator{Client: op.GetClient(), Cluster: cluster, Recorder: op.EventRecorder, Clock: op.Clock},
		Actions:       queue,
		Rearrange:     rearrange,
		FreedCapacity: func() { cluster.MarkUnconsolidated() },
		Options:       o.Realtime,
	})
	return append(loops, informer.New(store))
}

// inFlight tells whether a node may still come for a pending pod, as the provisioner sees it. For machines that are opened one after another, as
// none of them joins, no pod is left to wait longer than patience since it was first planned onto one.
func inFlight(cluster *state.Cluster, clk clock.PassiveClock, patience time.Duration) func(context.Context, *corev1.Pod) bool {
	return func(_ context.Context, pod *corev1.Pod) bool {
		key := client.ObjectKeyFromObject(pod)
		planned := cluster.PodSchedulingSuccessTime(key)
		if claim := cluster.PodNodeClaimMapping(key); claim != "" && cluster.NodeClaimExists(claim) {
			if planned.IsZero() { // by a disruption, of whose machine the provisioner has not heard yet
				planned = pod.CreationTimestamp.Time
			}
			return clk.Since(planned) < patience
		}
		if !planned.IsZero() {
			return clk.Since(planned) < hopeful
		}
		return cluster.PodSchedulingDecisionTime(key).IsZero() && clk.Since(pod.CreationTimestamp.Time) < undecided
	}
}
