package inventory

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
)

// nodeClasses is the controller that says of each node class whether it can be used and how many machines it has.
type nodeClasses struct {
	client client.Client
	clock  clock.Clock
	names  *typeNames
}

// Register adds the controller to a manager.
func (c *nodeClasses) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("inventory.nodeclasses").
		For(&nodeclass.InventoryNodeClass{}).
		Watches(&Machine{}, handler.EnqueueRequestsFromMapFunc(c.all)).
		Complete(c)
}

func (c *nodeClasses) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &nodeclass.InventoryNodeClassList{}
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing node classes")
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].Name = list.Items[i].Name
	}
	return requests
}

// Reconcile writes the status of a node class.
func (c *nodeClasses) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &nodeclass.InventoryNodeClass{}
	if err := c.client.Get(ctx, req.NamespacedName, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(wrapped("getting node class", err))
	}
	before := class.DeepCopy()
	conditions := class.StatusConditions(status.WithClock(c.clock))
	listed, err := selected(ctx, c.client, class)
	if err != nil {
		conditions.SetFalse(status.ConditionReady, "InvalidSelector", err.Error())
	} else {
		describe(class, conditions, listed)
		class.Status.MachinesHash = c.hash(listed)
	}
	if equality.Semantic.DeepEqual(before.Status, class.Status) {
		return reconcile.Result{}, nil
	}
	err = c.client.Status().Update(ctx, class)
	return reconcile.Result{}, client.IgnoreNotFound(ignoreConflict(wrapped("writing status of node class", err)))
}

func describe(class *nodeclass.InventoryNodeClass, conditions status.ConditionSet, listed []*Machine) {
	n := counted(listed)
	class.Status.Machines, class.Status.Free = int32(n.all), int32(n.free)
	class.Status.Claimed, class.Status.Unavailable = int32(n.claimed), int32(n.unavailable)
	switch {
	case n.all == 0:
		conditions.SetFalse(nodeclass.ConditionCapacityAvailable, nodeclass.ReasonNoMachines, "spec.selector selects no InventoryMachine")
	case n.free == 0:
		conditions.SetFalse(nodeclass.ConditionCapacityAvailable, nodeclass.ReasonInventoryFull, census(listed))
	default:
		conditions.SetTrueWithReason(nodeclass.ConditionCapacityAvailable, nodeclass.ReasonMachinesFree, census(listed))
	}
	conditions.SetTrue(status.ConditionReady)
}

// hash changes with the instance type of any of the machines. Karpenter asks whether a NodeClaim has drifted when its node class changes,
// and otherwise every few minutes only.
func (c *nodeClasses) hash(listed []*Machine) string {
	if len(listed) == 0 {
		return ""
	}
	types := make([]string, len(listed))
	for i, m := range listed {
		types[i] = m.Name + "=" + c.names.of(m)
	}
	slices.Sort(types)
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(strings.Join(types, ","))) // a hash takes all
	return fmt.Sprintf("%016x", sum.Sum64())
}
