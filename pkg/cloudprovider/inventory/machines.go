package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// machines is the controller that does with each machine what its status says is to be done. It alone takes claims
// away, one reconcile of a machine at a time, so what it has read of a claim stays true while it acts.
type machines struct {
	Options
	names *typeNames
}

// machineConcurrency is how many machines are worked on at once. A power driver that hangs holds up one of them.
const machineConcurrency = 32

// Register adds the controller to a manager.
func (c *machines) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("inventory.machines").
		For(&Machine{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.requestsForNode), builder.WithPredicates(nodeMatters())).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(c.requestsForNodeClaim)).
		WithOptions(controller.Options{MaxConcurrentReconciles: machineConcurrency}).
		Complete(c)
}

// nodeMatters passes over what kubelets report every few seconds.
func nodeMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return ready(before) != ready(after) || before.Spec.ProviderID != after.Spec.ProviderID ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	}}
}

func (c *machines) requestsForNode(ctx context.Context, node client.Object) []reconcile.Request {
	return c.requests(ctx, func(m *Machine) bool { return nodeName(m) == node.GetName() })
}

func (c *machines) requestsForNodeClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return c.requests(ctx, func(m *Machine) bool {
		return m.Status.Claim != nil && m.Status.Claim.UID == claim.GetUID() || claim.GetAnnotations()[v1alpha1.AnnotationAdopt] == m.Name
	})
}

func (c *machines) requests(ctx context.Context, concerns func(*Machine) bool) []reconcile.Request {
	list := &v1alpha1.InventoryMachineList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing machines")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if concerns(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// world is what a machine's next step depends on beside the machine itself.
type world struct {
	// node of the machine; nil without one.
	node *corev1.Node
	// nodeClaim that has the machine; nil when it is gone.
	nodeClaim *karpv1.NodeClaim
}

// Reconcile takes the next step for a machine. What it has learnt is written even when the step has failed.
func (c *machines) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m := &Machine{}
	// Not from the cache: power is switched by what this says.
	if err := c.Reader.Get(ctx, req.NamespacedName, m); err != nil {
		if apierrors.IsNotFound(err) {
			metrics.Machines.Set(req.Name, "")
		}
		return reconcile.Result{}, client.IgnoreNotFound(wrapped("getting machine", err))
	}
	if m.DeletionTimestamp.IsZero() && controllerutil.AddFinalizer(m, v1alpha1.FinalizerInventoryMachine) {
		return reconcile.Result{}, ignoreConflict(wrapped("adding finalizer", c.Client.Update(ctx, m)))
	}
	w, err := c.look(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := m.DeepCopy()
	wait, err := c.step(ctx, m, w)
	m.Status.ObservedGeneration, m.Status.InstanceType, m.Status.Phase = m.Generation, c.names.of(m), phase(m)
	if err := errors.Join(err, c.write(ctx, before, m)); err != nil {
		return reconcile.Result{}, err
	}
	c.measure(before, m)
	if m.Status.Claim == nil && !m.DeletionTimestamp.IsZero() && controllerutil.RemoveFinalizer(m, v1alpha1.FinalizerInventoryMachine) {
		return reconcile.Result{}, client.IgnoreNotFound(ignoreConflict(wrapped("removing finalizer", c.Client.Update(ctx, m))))
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// step takes the step of the stage that the machine is in and returns when to look again. Whatever changes the machine,
// its Node or its NodeClaim leads to the next one by itself.
func (c *machines) step(ctx context.Context, m *Machine, w world) (time.Duration, error) {
	if m.Status.Claim == nil {
		return c.rest(ctx, m, w)
	}
	switch m.Status.Claim.Stage {
	case v1alpha1.StageStarting:
		return c.start(ctx, m, w)
	case v1alpha1.StageInUse:
		return c.use(ctx, m, w)
	case v1alpha1.StageStopping:
		return c.stop(ctx, m, w)
	}
	return c.release(ctx, m, w)
}

// look reads the machine's Node and NodeClaim. That a NodeClaim is gone is not believed of the cache.
func (c *machines) look(ctx context.Context, m *Machine) (world, error) {
	w := world{node: &corev1.Node{}}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: nodeName(m)}, w.node); err != nil {
		if !apierrors.IsNotFound(err) {
			return w, fmt.Errorf("getting Node: %w", err)
		}
		w.node = nil
	}
	if m.Status.Claim == nil {
		return w, nil
	}
	for _, from := range []client.Reader{c.Client, c.Reader} {
		claim := &karpv1.NodeClaim{}
		err := from.Get(ctx, client.ObjectKey{Name: m.Status.Claim.NodeClaim}, claim)
		if client.IgnoreNotFound(err) != nil {
			return w, fmt.Errorf("getting NodeClaim: %w", err)
		}
		if err == nil && claim.UID == m.Status.Claim.UID {
			w.nodeClaim = claim
			return w, nil
		}
	}
	return w, nil
}

// write stores a changed status. A conflict means that something newer is there, which comes as an event.
func (c *machines) write(ctx context.Context, before, after *Machine) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	return client.IgnoreNotFound(ignoreConflict(wrapped("writing status of machine", c.Client.Status().Update(ctx, after))))
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// endNodeClaim deletes the machine's NodeClaim, if it is there and not being deleted. Karpenter drains the Node and
// then calls Delete.
func (c *machines) endNodeClaim(ctx context.Context, claim *karpv1.NodeClaim) error {
	if claim == nil || !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	err := c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	return client.IgnoreNotFound(ignoreConflict(wrapped("deleting NodeClaim", err)))
}

// endNode deletes the machine's Node, if it is there and not being deleted.
func (c *machines) endNode(ctx context.Context, node *corev1.Node) error {
	if node == nil || !node.DeletionTimestamp.IsZero() {
		return nil
	}
	err := c.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID})
	return client.IgnoreNotFound(ignoreConflict(wrapped("deleting Node", err)))
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
