package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Event reasons of headroom.
const (
	// ReasonBadHeadroom: the annotation cannot be read, or asks for what cannot be.
	ReasonBadHeadroom = "BadHeadroom"
	// ReasonHeadroomOff: the annotation asks for headroom, and gate CapacityBuffer is off.
	ReasonHeadroomOff = "HeadroomOff"
)

const (
	// resync is how often it is looked whether everything is still there.
	resync = time.Minute
	// headroomTimeout bounds one look.
	headroomTimeout = 30 * time.Second
)

// HeadroomDependencies are the collaborators of the loop. All are required.
type HeadroomDependencies struct {
	// Client reads from a cache.
	Client   client.Client
	Recorder karpenterevents.Recorder
	// Namespace is where what stands for the headroom is.
	Namespace string
	// Granularity in microseconds is what is charged to every budget, as to those of pods.
	Granularity int64
	// Buffers tells whether Karpenter keeps CapacityBuffers (its feature gate).
	Buffers bool
}

// NewHeadroom makes the loop that keeps room for real-time pods of a stated shape in a NodePool: annotation
// mckube.io/headroom (Headroom). Karpenter keeps the room, by CapacityBuffers; but the pods that stand for one must have
// a ResourceClaim each, or no core is kept for them: Karpenter places pods whose claims are still to be made from a
// template as if they had none.
func NewHeadroom(d HeadroomDependencies) controller.Controller { return &headroom{d} }

type headroom struct{ HeadroomDependencies }

// Register implements controller.Controller.
func (h *headroom) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("provisioning.headroom").
		For(&karpv1.NodePool{}).
		Complete(h)
}

// Reconcile makes what stands for the headroom of a NodePool what the annotation says. What it has made belongs to the
// NodePool, and goes with it.
func (h *headroom) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, headroomTimeout)
	defer cancel()
	pool := &karpv1.NodePool{}
	if err := h.Client.Get(ctx, request.NamespacedName, pool); err != nil || !pool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	text, asked := pool.Annotations[v1alpha1.AnnotationHeadroom]
	if !h.Buffers {
		if asked {
			h.tell(pool, ReasonHeadroomOff, "Annotation "+v1alpha1.AnnotationHeadroom+" has no effect: feature gate CapacityBuffer is off (chart value settings.featureGates.capacityBuffer)")
		}
		return reconcile.Result{}, nil
	}
	var wanted []client.Object
	if asked {
		shape, err := ParseHeadroom(text)
		if err == nil {
			wanted, err = shape.objects(pool, h.Namespace, h.Granularity)
		}
		if err != nil {
			h.tell(pool, ReasonBadHeadroom, fmt.Sprintf("Annotation %s: %v. What was kept before stays", v1alpha1.AnnotationHeadroom, err))
			return reconcile.Result{}, nil
		}
	}
	return reconcile.Result{RequeueAfter: resync}, h.settle(ctx, pool, wanted)
}

func (h *headroom) tell(pool *karpv1.NodePool, reason, message string) {
	h.Recorder.Publish(karpenterevents.Event{
		InvolvedObject: pool, Type: corev1.EventTypeWarning, Reason: reason, Message: message, DedupeValues: []string{string(pool.UID), message},
	})
}

// settle creates what is missing and then deletes what is there for no reason, so that room is not given up before there
// is other. Names say what an object asks for: none has to be changed.
func (h *headroom) settle(ctx context.Context, pool *karpv1.NodePool, wanted []client.Object) error {
	there, err := h.there(ctx, pool)
	if err != nil {
		return err
	}
	var failed []error
	for _, o := range wanted {
		if !slices.ContainsFunc(there, same(o)) {
			failed = append(failed, h.create(ctx, o))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, o := range there {
		if !slices.ContainsFunc(wanted, same(o)) {
			failed = append(failed, client.IgnoreNotFound(h.Client.Delete(ctx, o)))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("giving up headroom of NodePool %s: %w", pool.Name, err)
	}
	return nil
}

func (h *headroom) create(ctx context.Context, o client.Object) error {
	if err := h.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// same is another object of the kind and name.
func same(o client.Object) func(client.Object) bool {
	return func(other client.Object) bool {
		return other.GetName() == o.GetName() && fmt.Sprintf("%T", other) == fmt.Sprintf("%T", o)
	}
}

// there are the objects that stand for headroom of a NodePool now.
func (h *headroom) there(ctx context.Context, pool *karpv1.NodePool) ([]client.Object, error) {
	var out []client.Object
	for _, list := range []client.ObjectList{&resourcev1.ResourceClaimList{}, &corev1.PodTemplateList{}, &autoscalingv1beta1.CapacityBufferList{}} {
		if err := h.Client.List(ctx, list, client.InNamespace(h.Namespace), client.MatchingLabels{v1alpha1.LabelHeadroom: pool.Name}); err != nil {
			return nil, fmt.Errorf("listing what stands for headroom of NodePool %s: %w", pool.Name, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if item, ok := o.(client.Object); ok && item.GetDeletionTimestamp().IsZero() {
				out = append(out, item)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading what stands for headroom of NodePool %s: %w", pool.Name, err)
		}
	}
	return out, nil
}
