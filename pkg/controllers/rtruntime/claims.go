package rtruntime

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// annotationPodClaim is Kubernetes' own: which claim of its pod a ResourceClaim is.
const annotationPodClaim = "resource.kubernetes.io/pod-claim-name"

// holding is bandwidth of a core to be held for a container that runs.
type holding struct {
	// Name of the claim.
	Name                 string
	Namespace, Pod       string
	PodUID               types.UID
	Container, Node      string
	Core                 int
	Bandwidth            rt.PPM
	Server               rt.Server
	ChargedGranularityUs int64
}

// claimName is pod, container and suffix, cut to what an object may be called.
func claimName(pod, container, suffix string) string {
	name := pod + "-" + container
	if limit := validation.DNS1123SubdomainMaxLength - len(suffix) - 1; len(name) > limit {
		name = strings.TrimRight(name[:limit], "-.")
	}
	return name + "-" + suffix
}

// claim is the ResourceClaim of a holding, not yet allocated. The pod owns it: it ends with the pod. The finalizer
// is Kubernetes' own, as on claims that the scheduler allocates: with it Kubernetes takes the allocation back
// before the claim goes, and only that wakes the scheduler for pods that wait for the core.
func (h holding) claim() *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.Namespace, Name: h.Name,
			Finalizers:  []string{resourcev1.Finalizer},
			Labels:      map[string]string{v1alpha1.LabelHeldFor: string(h.PodUID)},
			Annotations: map[string]string{annotationPodClaim: rtdra.ClaimName(h.Container)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: h.Pod, UID: h.PodUID, Controller: ptr.To(true),
			}},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: v1alpha1.RequestCore,
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: v1alpha1.DeviceClassRTCore,
				AllocationMode:  resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors: rtdra.Selectors(h.Server, h.ChargedGranularityUs),
				Capacity:  &resourcev1.CapacityRequirements{Requests: h.share()},
			},
		}}}},
	}
}

func (h holding) share() map[resourcev1.QualifiedName]resource.Quantity {
	return map[resourcev1.QualifiedName]resource.Quantity{
		v1alpha1.CapacityRTBandwidth: *resource.NewQuantity(int64(h.Bandwidth), resource.DecimalSI),
	}
}

// status allocates the core to the claim as the scheduler would have, so that it and Karpenter count it.
func (h holding) status() resourcev1.ResourceClaimStatus {
	share := uuid.NewUUID()
	return resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: v1alpha1.RequestCore, Driver: v1alpha1.DriverCPU,
				Pool: h.Node, Device: rtdra.DeviceName(h.Core),
				ShareID: &share, ConsumedCapacity: h.share(),
			}}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{h.Node},
				}},
			}}},
		},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: h.Pod, UID: h.PodUID}},
	}
}

// hold creates the claim, or continues one that a crash left without its allocation, and allocates it. The
// write fails when another writer allocated it meanwhile.
func (d Dependencies) hold(ctx context.Context, h holding) (*resourcev1.ResourceClaim, error) {
	claim := h.claim()
	err := d.Client.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		err = d.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if err == nil && !metav1.IsControlledBy(claim, podOf(h)) {
			return nil, &takenError{h.Namespace, h.Name}
		}
		if err == nil && claim.Status.Allocation != nil { // the cache is about to show it
			return nil, fmt.Errorf("holding core %d of node %s: %w", h.Core, h.Node,
				apierrors.NewAlreadyExists(resourcev1.Resource("resourceclaims"), h.Name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating claim %s/%s: %w", h.Namespace, h.Name, err)
	}
	before := claim.DeepCopy()
	if controllerutil.AddFinalizer(claim, resourcev1.Finalizer) { // one that was about to be let go
		if err := d.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("adding the finalizer of claim %s/%s: %w", h.Namespace, h.Name, err)
		}
	}
	claim.Status = h.status()
	if err := d.Client.Status().Update(ctx, claim); err != nil {
		return nil, fmt.Errorf("allocating claim %s/%s: %w", h.Namespace, h.Name, err)
	}
	d.FreedCapacity()
	return claim, nil
}

// takenError says that another claim has the name of the one to be made. It belongs to an earlier pod of the same name,
// and goes with that pod, or to a user.
type takenError struct{ namespace, name string }

func (e *takenError) Error() string {
	return fmt.Sprintf("claim %s/%s exists and does not belong to the pod; delete it", e.namespace, e.name)
}

func podOf(h holding) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Pod, UID: h.PodUID}}
}

// letGo gives back what hold claimed: first the allocation, which tells the scheduler, then the claim.
func (d Dependencies) letGo(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	if claim.Status.Allocation != nil || len(claim.Status.ReservedFor) > 0 {
		freed := claim.DeepCopy()
		freed.Status.Allocation, freed.Status.ReservedFor, freed.Status.Devices = nil, nil, nil
		if err := d.Client.Status().Update(ctx, freed); err != nil {
			return fmt.Errorf("freeing claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		claim = freed
	}
	if controllerutil.ContainsFinalizer(claim, resourcev1.Finalizer) {
		without := claim.DeepCopy()
		controllerutil.RemoveFinalizer(without, resourcev1.Finalizer)
		if err := d.Client.Patch(ctx, without, client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizer of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	err := d.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	d.FreedCapacity()
	return nil
}

// heldClaims lists the claims that the controller made for containers of a pod.
func (d Dependencies) heldClaims(ctx context.Context, namespace string, pod types.UID) ([]resourcev1.ResourceClaim, error) {
	list := &resourcev1.ResourceClaimList{}
	err := d.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelHeldFor: string(pod)})
	if err != nil {
		return nil, fmt.Errorf("listing claims held for pod %s: %w", pod, err)
	}
	return list.Items, nil
}
