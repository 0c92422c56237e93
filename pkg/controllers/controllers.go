// Package controllers is the table of contents of the controller: every control loop that runs in
// it is listed here, once.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	cloudprovidermetrics "sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	karpenter "sigs.k8s.io/karpenter/pkg/controllers"
	karpenterdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	metricsnodepool "sigs.k8s.io/karpenter/pkg/controllers/metrics/nodepool"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
	staticdeprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/deprovisioning"
	staticprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/limits"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/pricecap"
	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	provisioningcontrollers "github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// Set is the assembled list of controllers and what they share.
type Set struct {
	Controllers []controller.Controller
	Cluster     *state.Cluster
	// CloudProvider is the one whose prices are those of plans. It is under the limits of policies: what is launched has its room already.
	CloudProvider cloudprovider.CloudProvider
}

// Options are the settings of our own controllers.
type Options struct {
	Realtime rtruntime.Options
	Pressure ladder.Options
	Queue    orchestration.Options
	// Migrations of pods.
	Migrations Migrations
	// Resources are watched, and who is told of migrations.
	Resources Resources
	// Lease says which process's orchestration queue acts.
	Lease types.NamespacedName
	// Repack are the settings of repacking.
	Repack disruption.RepackOptions
	// CalibrationTimeout is how long a new node may wait for its agent to measure; 0: nodes do not wait.
	CalibrationTimeout time.Duration
}

// New assembles Karpenter's standard controllers and ours around one cluster state, one
// provisioner and one disruption queue. The provider is decorated here, innermost first: metrics,
// then NodeOverlays, which adjust prices, then the limits of CostPolicies and PowerPolicies, then what remembers failed launches,
// those that a limit refuses among them.
// The real-time store stands beside the cluster state and is fed here; whoever else reads it is given the
// same one.
func New(ctx context.Context, op *operator.Operator, provider cloudprovider.CloudProvider, store *rtstate.Store, o Options) (Set, error) {
	measured := cloudprovidermetrics.Decorate(provider)
	overlaid := &evaluations{CloudProvider: overlay.Decorate(measured, op.GetClient(), op.InstanceTypeStore), clock: op.Clock}
	planned := provisioningcontrollers.NewLaunches(limits.Decorate(overlaid, op.GetClient(), op.EventRecorder, op.Clock), op.Clock)
	repairPolicies, err := health.NewRepairPolicyMatcher(ctx, planned)
	if err != nil {
		return Set{}, fmt.Errorf("reading the repair policies of cloud provider %q: %w", provider.Name(), err)
	}
	cluster := state.NewCluster(op.Clock, op.GetClient(), planned, state.WithRepairPolicyMatcher(repairPolicies))
	standard := karpenter.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder,
		pricecap.Decorate(planned), measured, cluster, op.InstanceTypeStore, op.PredictionStore,
		karpenter.WithRegistrationHook(calibration(op, planned, store, o.CalibrationTimeout)))

	provisioner, ok := find[*provisioning.Provisioner](standard)
	if !ok {
		return Set{}, fmt.Errorf("assembling controllers: Karpenter's list has no *provisioning.Provisioner")
	}
	var queue *orchestration.Queue
	gate := disruption.NewGate(op.GetClient(), op.Clock, store, func() disruption.Actions { return queue })
	disruptions := gate.NewQueue(op.EventRecorder, cluster, provisioner)
	if queue, err = newQueue(op, planned, cluster, disruptions, o); err != nil {
		return Set{}, err
	}
	list, err := withOwnDisruption(ctx, op, queue, disruption.Dependencies{
		Clock: op.Clock, Client: op.GetClient(), Reader: op.GetAPIReader(), CloudProvider: planned, Recorder: op.EventRecorder,
		Cluster: cluster, Provisioner: provisioner, Queue: disruptions, Gate: gate, Store: store, Actions: queue, Trigger: disruption.NewTrigger(),
		Repack: o.Repack,
	}, standard)
	if err != nil {
		return Set{}, err
	}
	if list, err = withOwnStatic(op, planned, cluster, list); err != nil {
		return Set{}, err
	}
	list = append(list, realtime(ctx, op, cluster, store, queue, overlaid, o)...)
	latest := usage.NewLatest(op.Clock, o.Resources.Pressure.MaxAge())
	moving := newMoving(op, cluster, store, queue, o.Migrations)
	list = append(list, moving.loops(queue, latest, o.Migrations)...)
	list = append(list, resources(op, cluster, store, latest, o.Resources)...)
	list = append(list, workloads(op, overlaid, cluster)...)
	list = append(list, pressure(op, store, queue, moving, o.Pressure))
	if list, err = (opening{o, op, planned, cluster, store}).withOpening(ctx, list, queue); err != nil {
		return Set{}, err
	}
	for _, loop := range queue.Loops() {
		list = append(list, loop)
	}
	return Set{Controllers: list, Cluster: cluster, CloudProvider: overlaid}, nil
}

// withOwnDisruption replaces Karpenter's disruption controller and queue by ours, on the provisioner that they were built
// with. The running cost of the cluster is private to Karpenter's list, so the controllers that feed and read it are rebuilt
// around an instance that ours can read. Ours also does the queue's actions that replace nodes.
func withOwnDisruption(ctx context.Context, op *operator.Operator, queue *orchestration.Queue, d disruption.Dependencies, standard []controller.Controller) ([]controller.Controller, error) {
	d.Cost = cost.NewClusterCost(ctx, d.CloudProvider, op.GetClient())
	observed := !options.FromContext(ctx).DisableClusterStateObservability
	drops := []dropper{
		drop[*karpenterdisruption.Controller], drop[*karpenterdisruption.Queue], drop[*informer.NodePoolController],
		drop[*informer.NodeClaimController], drop[*informer.PricingController],
	}
	if observed {
		drops = append(drops, drop[*metricsnodepool.Controller])
	}
	list, err := dropAll(standard, drops)
	if err != nil {
		return nil, err
	}
	ours := disruption.NewController(ctx, d)
	queue.Handle(rules.ReplaceNode, ours.Executor())
	queue.Listen(ours.Follow)
	list = append(list,
		informer.NewNodePoolController(op.GetClient(), d.CloudProvider, d.Cluster, d.Cost),
		informer.NewNodeClaimController(op.GetClient(), d.CloudProvider, d.Cluster, d.Cost),
		informer.NewPricingController(op.GetClient(), d.CloudProvider, d.Cost),
		d.Queue, ours,
		disruption.NewBudgets(disruption.BudgetsDependencies{Clock: op.Clock, Client: op.GetClient(), Recorder: op.EventRecorder}),
	)
	if observed {
		list = append(list, metricsnodepool.NewController(op.GetClient(), d.CloudProvider, d.Cost))
	}
	return list, nil
}

// withOwnStatic has Karpenter's controllers of static NodePools back off, and leave replacements alone, where they run.
func withOwnStatic(op *operator.Operator, launches *provisioningcontrollers.Launches, cluster *state.Cluster, list []controller.Controller) ([]controller.Controller, error) {
	karpenters, ok := find[*staticprovisioning.Controller](list)
	if !ok {
		return list, nil // its feature gate is off
	}
	deprovisions, ok := find[*staticdeprovisioning.Controller](list)
	if !ok {
		return nil, errors.New("assembling controllers: Karpenter's list provisions static NodePools and has no controller that deprovisions them")
	}
	list, err := dropAll(list, []dropper{drop[*staticprovisioning.Controller], drop[*staticdeprovisioning.Controller]})
	return append(list,
		provisioningcontrollers.NewStatic(provisioningcontrollers.StaticDependencies{
			Clock: op.Clock, Client: op.GetClient(), Recorder: op.EventRecorder, Launches: launches,
		}, karpenters),
		provisioningcontrollers.NewDeprovisioning(provisioningcontrollers.DeprovisioningDependencies{
			Client: op.GetClient(), CloudProvider: launches, Cluster: cluster,
		}, deprovisions),
	), err
}

// find returns the first controller of type T. The list's interface carries no names, so the type
// is the only handle on a member.
func find[T controller.Controller](list []controller.Controller) (T, bool) {
	for _, c := range list {
		if t, ok := c.(T); ok {
			return t, true
		}
	}
	var none T
	return none, false
}

// dropper removes the one controller of a type from a list.
type dropper func([]controller.Controller) ([]controller.Controller, error)

func dropAll(list []controller.Controller, drops []dropper) ([]controller.Controller, error) {
	for _, drop := range drops {
		var err error
		if list, err = drop(list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// drop removes the controller of type T. That there is not exactly one means that Karpenter's list is
// no longer what this assembly was written for: two of a kind would fight over the same objects.
func drop[T controller.Controller](list []controller.Controller) ([]controller.Controller, error) {
	kept := lo.Reject(list, func(c controller.Controller, _ int) bool {
		_, ok := c.(T)
		return ok
	})
	if n := len(list) - len(kept); n != 1 {
		return nil, fmt.Errorf("assembling controllers: Karpenter's list has %d of %s, want 1", n, reflect.TypeFor[T]())
	}
	return kept, nil
}
