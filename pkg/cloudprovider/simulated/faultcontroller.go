package simulated

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// faultController makes faults strike machines that are there (SpotInterruption, NodeFailure) and
// tells the state of all faults. Its order is a contract: victims are on the fault's list in the API
// server before anything happens to them, and what happens to one can be done again without harm.
type faultController struct {
	client   client.Client
	clock    clock.Clock
	recorder events.Recorder
	kubelets *kubelets
}

// Register adds the controller to a manager.
func (f *faultController) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("simulated.fault").
		For(&v1alpha1.SimulatedFault{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(f.requestsForNodeClaim)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(requestForFailedNode)).
		Complete(f)
}

// requestsForNodeClaim asks again about every fault that may strike or has struck the NodeClaim.
func (f *faultController) requestsForNodeClaim(ctx context.Context, o client.Object) []reconcile.Request {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok {
		return nil
	}
	list := &v1alpha1.SimulatedFaultList{}
	if err := f.client.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "listing simulated faults for a NodeClaim")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		fault := &list.Items[i]
		if strikesMachines(fault) && (struck(fault, claim) || room(fault) > 0) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: fault.Name}})
		}
	}
	return requests
}

// requestForFailedNode finds Nodes at start whose fault ended while nobody looked.
func requestForFailedNode(_ context.Context, node client.Object) []reconcile.Request {
	fault := node.GetAnnotations()[v1alpha1.AnnotationFailedBy]
	if fault == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: fault}}}
}

// Reconcile lets a fault strike what it may, finishes what it has begun, and writes its state.
func (f *faultController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	fault := &v1alpha1.SimulatedFault{}
	err := f.client.Get(ctx, req.NamespacedName, fault)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, f.recover(ctx, req.Name)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting simulated fault: %w", err)
	}
	if err := f.choose(ctx, fault); err != nil {
		return reconcile.Result{}, err
	}
	stored := fault.DeepCopy()
	next, actErr := f.act(ctx, fault)
	apimeta.SetStatusCondition(&fault.Status.Conditions, f.state(fault))
	if err := f.save(ctx, stored, fault); err != nil {
		return reconcile.Result{}, err
	}
	if actErr != nil {
		return reconcile.Result{}, actErr
	}
	return reconcile.Result{RequeueAfter: f.until(fault, next)}, nil
}

// choose puts new victims on the list and saves it.
func (f *faultController) choose(ctx context.Context, fault *v1alpha1.SimulatedFault) error {
	if !lasts(fault, f.clock.Now()) || room(fault) == 0 || !strikesMachines(fault) {
		return nil
	}
	claims := &karpv1.NodeClaimList{}
	if err := f.client.List(ctx, claims); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	broken, err := f.brokenByOthers(ctx, fault)
	if err != nil {
		return err
	}
	sound := slices.DeleteFunc(claims.Items, func(c karpv1.NodeClaim) bool { return broken[c.Status.NodeName] })
	stored := fault.DeepCopy()
	for _, claim := range victims(fault, sound) {
		record(fault, claim, f.clock.Now())
	}
	return f.save(ctx, stored, fault)
}

// brokenByOthers names the Nodes that another NodeFailure has broken. One breaks a Node at a time, so
// that what is mended when a fault ends is what that fault did.
func (f *faultController) brokenByOthers(ctx context.Context, fault *v1alpha1.SimulatedFault) (map[string]bool, error) {
	if fault.Spec.Type != v1alpha1.FaultNodeFailure {
		return nil, nil
	}
	nodes := &corev1.NodeList{}
	if err := f.client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	broken := map[string]bool{}
	for i := range nodes.Items {
		if by := nodes.Items[i].Annotations[v1alpha1.AnnotationFailedBy]; by != "" && by != fault.Name {
			broken[nodes.Items[i].Name] = true
		}
	}
	return broken, nil
}

// act does to every victim what the fault does, and returns when to look again.
func (f *faultController) act(ctx context.Context, fault *v1alpha1.SimulatedFault) (time.Time, error) {
	switch fault.Spec.Type {
	case v1alpha1.FaultSpotInterruption:
		return f.interruptAll(ctx, fault)
	case v1alpha1.FaultNodeFailure:
		if !lasts(fault, f.clock.Now()) {
			return time.Time{}, f.recover(ctx, fault.Name)
		}
		return time.Time{}, f.failAll(ctx, fault)
	default:
		return time.Time{}, nil
	}
}

// state is the Active condition of a fault.
func (f *faultController) state(fault *v1alpha1.SimulatedFault) metav1.Condition {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionActive,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: fault.Generation,
		LastTransitionTime: metav1.NewTime(f.clock.Now()),
	}
	most, counted := limit(fault)
	switch {
	case !lasts(fault, f.clock.Now()):
		c.Reason, c.Message = v1alpha1.ReasonExpired, "its duration is over"
	case room(fault) == 0:
		c.Reason, c.Message = v1alpha1.ReasonExhausted, fmt.Sprintf("it has struck %d of %d NodeClaims", len(fault.Status.Affected), most)
	case counted:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonStriking
		c.Message = fmt.Sprintf("it has struck %d of %d NodeClaims", len(fault.Status.Affected), most)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonStriking, "it strikes everything that it selects"
	}
	return c
}

// save writes the status if it differs, and fails when someone else has written meanwhile.
func (f *faultController) save(ctx context.Context, stored, fault *v1alpha1.SimulatedFault) error {
	if equality.Semantic.DeepEqual(stored.Status, fault.Status) {
		return nil
	}
	if err := f.client.Status().Update(ctx, fault); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing status of simulated fault %q: %w", fault.Name, err)
	}
	return nil
}

// until is the time to the next thing to do: the given one or the fault's expiry; 0 for nothing.
func (f *faultController) until(fault *v1alpha1.SimulatedFault, next time.Time) time.Duration {
	if end, ends := expiry(fault); ends && lasts(fault, f.clock.Now()) && (next.IsZero() || end.Before(next)) {
		next = end
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(f.clock.Now()), time.Millisecond)
}

func strikesMachines(fault *v1alpha1.SimulatedFault) bool {
	return fault.Spec.Type == v1alpha1.FaultSpotInterruption || fault.Spec.Type == v1alpha1.FaultNodeFailure
}

// victims chooses registered NodeClaims for a fault, the oldest first, as many as it has room for.
func victims(fault *v1alpha1.SimulatedFault, claims []karpv1.NodeClaim) []*karpv1.NodeClaim {
	var found []*karpv1.NodeClaim
	for i := range claims {
		claim := &claims[i]
		if eligible(fault, claim) {
			found = append(found, claim)
		}
	}
	slices.SortFunc(found, func(a, b *karpv1.NodeClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return found[:min(len(found), room(fault))]
}

func eligible(fault *v1alpha1.SimulatedFault, claim *karpv1.NodeClaim) bool {
	_, ours := nodeOf(claim.Status.ProviderID)
	spot := claim.Labels[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeSpot
	return ours && claim.DeletionTimestamp.IsZero() && claim.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() &&
		(spot || fault.Spec.Type != v1alpha1.FaultSpotInterruption) &&
		selects(fault.Spec.Selector, targetOf(claim)) && !struck(fault, claim)
}
