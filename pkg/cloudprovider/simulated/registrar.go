package simulated

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// registrar makes launched machines join: it creates the Node of every NodeClaim whose machine has
// had time to boot, and removes Nodes of ours whose NodeClaim is gone. It knows only what the API
// server knows, and the name of a Node follows from its NodeClaim, so it makes one Node for each
// however often it is interrupted.
type registrar struct {
	client   client.Client
	clock    clock.Clock
	recorder events.Recorder
	faults   *faults
}

// registrarConcurrency is how many machines join at once.
const registrarConcurrency = 50

// Register adds the controller to a manager.
func (r *registrar) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("simulated.registrar").
		For(&karpv1.NodeClaim{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(requestForNode)).
		Watches(&v1alpha1.SimulatedFault{}, handler.EnqueueRequestsFromMapFunc(r.requestsForFault)).
		WithOptions(controller.Options{MaxConcurrentReconciles: registrarConcurrency}).
		Complete(r)
}

func requestForNode(_ context.Context, node client.Object) []reconcile.Request {
	name := node.GetAnnotations()[v1alpha1.AnnotationNodeClaim]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// requestsForFault asks again about every machine that has not joined.
func (r *registrar) requestsForFault(ctx context.Context, _ client.Object) []reconcile.Request {
	claims := &karpv1.NodeClaimList{}
	if err := r.client.List(ctx, claims); err != nil {
		log.FromContext(ctx).Error(err, "listing NodeClaims for a simulated fault")
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		if awaited(&claims.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: claims.Items[i].Name}})
		}
	}
	return requests
}

// Reconcile handles the NodeClaim of that name and every Node that says it is its machine.
func (r *registrar) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &karpv1.NodeClaim{}
	err := r.client.Get(ctx, req.NamespacedName, claim)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.removeOrphans(ctx, req.Name, "")
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting NodeClaim: %w", err)
	}
	if claim.Status.ProviderID != providerID(claim) || !claim.DeletionTimestamp.IsZero() || !awaited(claim) {
		return reconcile.Result{}, nil
	}
	launch := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
	if !launch.IsTrue() || takenAway(claim, r.clock.Now()) {
		return reconcile.Result{}, nil
	}
	if err := r.removeOrphans(ctx, claim.Name, claim.UID); err != nil {
		return reconcile.Result{}, err
	}
	return r.join(ctx, claim, launch.LastTransitionTime.Time)
}

// join creates the Node when its time has come.
func (r *registrar) join(ctx context.Context, claim *karpv1.NodeClaim, launched time.Time) (reconcile.Result, error) {
	plan, err := r.plan(ctx, claim, launched)
	if err != nil {
		return reconcile.Result{}, err
	}
	wait := plan.at.Sub(r.clock.Now())
	switch {
	case plan.at.IsZero():
		return reconcile.Result{}, nil
	case wait > 0:
		return reconcile.Result{RequeueAfter: wait}, nil
	case plan.dies:
		return reconcile.Result{}, r.die(ctx, claim)
	}
	if err := r.client.Create(ctx, newNode(claim)); client.IgnoreAlreadyExists(err) != nil {
		return reconcile.Result{}, fmt.Errorf("creating Node: %w", err)
	}
	return reconcile.Result{}, nil
}

// plan is what becomes of a booting machine.
type plan struct {
	at   time.Time // when; zero for never
	dies bool      // instead of joining
}

// plan adds up the node class's registration delay and the faults that strike the NodeClaim. A
// failing registration outweighs slow ones.
func (r *registrar) plan(ctx context.Context, claim *karpv1.NodeClaim, launched time.Time) (plan, error) {
	delay, err := r.registrationDelay(ctx, claim)
	if err != nil {
		return plan{}, err
	}
	faults, err := r.faults.of(ctx, v1alpha1.FaultFailedRegistration, v1alpha1.FaultSlowRegistration)
	if err != nil {
		return plan{}, err
	}
	result := plan{at: launched.Add(delay)}
	for i := range faults {
		fault := &faults[i]
		if !selects(fault.Spec.Selector, targetOf(claim)) {
			continue
		}
		strikes, err := r.faults.strikes(ctx, fault, claim)
		if err != nil {
			return plan{}, err
		}
		if !strikes {
			continue
		}
		if fault.Spec.Type == v1alpha1.FaultFailedRegistration {
			r.recorder.Publish(registrationFailedEvent(claim, fault))
			return failing(fault, launched), nil
		}
		r.recorder.Publish(registrationSlowEvent(claim, fault))
		result.at = result.at.Add(fault.Spec.Delay.Duration)
	}
	return result, nil
}

func failing(fault *v1alpha1.SimulatedFault, launched time.Time) plan {
	if fault.Spec.Delay == nil {
		return plan{}
	}
	return plan{at: launched.Add(fault.Spec.Delay.Duration), dies: true}
}

func (r *registrar) registrationDelay(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	nodeClass := &kwokapi.KWOKNodeClass{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, nodeClass); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, fmt.Errorf("resolving node class: %w", err)
	}
	return nodeClass.Spec.NodeRegistrationDelay.Duration, nil
}

// die deletes the NodeClaim of a machine that ended while it booted, as a provider does when its
// cloud reports the end of an instance.
func (r *registrar) die(ctx context.Context, claim *karpv1.NodeClaim) error {
	if err := r.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim of a machine that did not boot: %w", err)
	}
	return nil
}

// removeOrphans deletes the Nodes that were made for a NodeClaim of that name with another UID. They
// come about when a NodeClaim is deleted while its Node is being created.
func (r *registrar) removeOrphans(ctx context.Context, claim string, uid types.UID) error {
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if node.Annotations[v1alpha1.AnnotationNodeClaim] != claim || node.Name == nodeName(claim, uid) || !node.DeletionTimestamp.IsZero() {
			continue
		}
		orphan := node.DeepCopy()
		if err := r.client.Delete(ctx, orphan, client.Preconditions{UID: &orphan.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting orphaned Node: %w", err)
		}
	}
	return nil
}
