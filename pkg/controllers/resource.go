package controllers

import (
	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/limits"
	"github.com/mainspring-rt/mainspring/pkg/controllers/optimizer"
	"github.com/mainspring-rt/mainspring/pkg/controllers/resourcepressure"
	"github.com/mainspring-rt/mainspring/pkg/controllers/sink"
	"github.com/mainspring-rt/mainspring/pkg/influx"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/policy"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// Resources are the settings of resource pressure, and of who is told of migrations.
type Resources struct {
	// Pressure says what is done about nodes that are short of CPU or memory, Usage how that is measured; nil: nobody looks.
	Pressure resourcepressure.Options
	Usage    usage.Source
	// Influx is told of each migration that is over; nil: nobody is.
	Influx *influx.Client
}

// workloads are the loops that tell what workloads cost and draw, and whether that is what policies allow.
func workloads(op *operator.Operator, provider cloudprovider.CloudProvider, cluster *state.Cluster) []controller.Controller {
	kube, events := op.GetClient(), recorder{op.EventRecorder}
	readings := &optimizer.Readings{Client: kube, CloudProvider: provider, Clock: op.Clock}
	return []controller.Controller{
		&optimizer.Controller{Client: kube, Readings: readings, Recorder: events, Clock: op.Clock},
		&optimizer.CostPolicies{Client: kube, Readings: readings, Recorder: events, Clock: op.Clock},
		&optimizer.PowerPolicies{Client: kube, Readings: readings, Recorder: events, Clock: op.Clock},
		&optimizer.FleetCost{Readings: readings, Clock: op.Clock},
		&limits.Changes{Client: kube, Cluster: cluster, Clock: op.Clock},
	}
}

// resources are the loop that sees which nodes are short of CPU or memory, and tells others what it has read, and the one that tells of migrations.
func resources(op *operator.Operator, cluster *state.Cluster, store *rtstate.Store, latest *usage.Latest, o Resources) []controller.Controller {
	var list []controller.Controller
	if o.Usage != nil && o.Pressure.Mode != resourcepressure.ModeOff {
		list = append(list, resourcepressure.New(resourcepressure.Dependencies{
			Clock: op.Clock, Client: op.GetClient(), API: op.GetAPIReader(), Store: store, Source: o.Usage, Latest: latest, Recorder: recorder{op.EventRecorder}, Options: o.Pressure,
			Placement: &placement.Simulator{Client: op.GetClient(), Cluster: cluster, Recorder: op.EventRecorder, Clock: op.Clock},
			Policies:  policy.NewJudge(policy.Options{Client: op.GetClient(), Clock: op.Clock}), // which is asked for policies, and decides nothing
		}))
	}
	if o.Influx != nil {
		writer := influx.NewWriter(o.Influx, influx.Defaults(), op.Clock)
		list = append(list, &sink.Controller{Client: op.GetClient(), Writer: writer, Runner: writer})
	}
	return list
}
