// Package disruption builds the controller that closes and replaces nodes. The mechanics are
// Karpenter's: its Queue, its candidate search, its simulation, its budgets. What is ours is the list of methods
// the loop tries, in order, on the queue and provisioner that every other controller shares: a method for nodes under
// real-time pressure, then the standard ones, which are taught to leave alone what real-time work needs.
package disruption

import (
	"context"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/cost"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
)

// starting is when to look again whether everything is known that may speak against closing a node.
const starting = time.Second

// Actions is the orchestration queue, as far as disruption needs it.
type Actions interface {
	// Ready is nil once the lists below are all that there are.
	Ready() error
	// Running lists the actions of a kind that run or are being undone, by name.
	Running(kind rules.Kind) []*v1alpha1.RTAction
	// WaitingFor lists those that wait for something, by name.
	WaitingFor(reason string) []*v1alpha1.RTAction
	// Awaiting lists those, and those that rest from waiting for it in vain.
	Awaiting(reason string) []*v1alpha1.RTAction
}

// Dependencies are the collaborators that disruption shares with the rest of the controllers.
// All are required.
type Dependencies struct {
	Clock  clock.Clock
	Client client.Client
	// Reader asks the API server itself.
	Reader        client.Reader
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Cluster       *state.Cluster
	Provisioner   *provisioning.Provisioner
	// Queue is the one queue that runs commands: a second one would race it for budgets. Gate is its client.
	Queue *disruption.Queue
	Gate  *Gate
	// Cost is the running price of each NodePool, the denominator of Balanced consolidation.
	Cost *cost.ClusterCost
	// Store knows the real-time work.
	Store *rtstate.Store
	// Actions are asked what else is being done to nodes and pods.
	Actions Actions
	// Trigger wakes the loop.
	Trigger *Trigger
	// Repack are the settings of repacking.
	Repack RepackOptions
}

// actions lists everything that the orchestration queue has in hand.
func (d Dependencies) actions() []*v1alpha1.RTAction { return running(d.Actions) }

func running(a Actions) (out []*v1alpha1.RTAction) {
	for _, kind := range rules.Kinds {
		out = append(out, a.Running(kind)...)
	}
	return out
}

func named(actions []*v1alpha1.RTAction) map[string]bool {
	out := map[string]bool{}
	for _, a := range actions {
		out[a.Name] = true
	}
	return out
}

// Controller is Karpenter's disruption loop with our methods. It also does actions of kind ReplaceNode.
type Controller struct {
	*disruption.Controller
	Dependencies
	desk *desk
	// standard are Karpenter's methods.
	standard []*filtered
}

// NewController returns the disruption loop on the shared queue and provisioner.
func NewController(ctx context.Context, d Dependencies) *Controller {
	for _, reason := range refusals {
		metrics.DisruptionRefusals.WithLabelValues(reason)
	}
	for _, reason := range keeps {
		metrics.DisruptionHeld.WithLabelValues(reason)
	}
	c := &Controller{Dependencies: d, desk: newDesk(), standard: standardMethods(ctx, d)}
	methods := []disruption.Method{&rtPressure{d, c.desk}}
	for _, m := range c.standard {
		methods = append(methods, m)
	}
	c.Controller = disruption.NewController(ctx, d.Clock, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Cluster, d.Queue, d.Cost,
		disruption.WithMethods(methods...))
	return c
}

// standardMethods are Karpenter's, each as a filtered method: node repair (behind its gate), emptiness, drift of static
// pools, drift, multi-node and single-node consolidation. Repacking comes last: it moves more pods for what it saves.
func standardMethods(ctx context.Context, d Dependencies) []*filtered {
	list := func() []disruption.Method {
		clk := &earlyClock{Clock: d.Clock, trigger: d.Trigger}
		return disruption.NewMethods(ctx, clk, d.Cluster, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Queue)
	}
	quiet, all := list(), list()
	out := make([]*filtered, len(quiet))
	for i := range quiet {
		if quiet[i].ConsolidationType() == "" {
			all[i] = quiet[i]
		}
		out[i] = newFiltered(d, quiet[i], all[i])
	}
	if d.Repack.Enabled {
		attempts := newRepackAttempts()
		out = append(out, newFiltered(d, newRepacking(d, attempts), newRepacking(d, attempts)))
	}
	return out
}

// Register implements controller.Controller. The loop runs when its own pause is over, or when the trigger is fired.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		WatchesRawSource(c.Trigger.source()).
		Complete(singleton.AsReconciler(c))
}

// knows tells whether all real-time containers and all actions are known.
func (c *Controller) knows() bool { return c.Store.Synced() == nil && c.Actions.Ready() == nil }

// Reconcile makes one pass of the loop.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	c.Trigger.beginPass()
	if !c.knows() { // nothing would speak against any node
		return reconciler.Result{RequeueAfter: starting}, nil
	}
	running := c.Actions.Running(rules.ReplaceNode)
	c.desk.open(running)
	c.Gate.forget(named(running))
	c.yield()
	began := c.Cluster.ConsolidationState()
	result, err := c.Controller.Reconcile(ctx)
	c.endPass(began)
	c.close(ctx, err)
	return result, err
}
