package simulated

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// nodeClaimVersion is the API version of NodeClaims in owner references.
var nodeClaimVersion = schema.GroupVersion{Group: apis.Group, Version: "v1"}.String()

// newNode is the Node that a machine joins with, made from its NodeClaim alone. The owner reference
// is the one that Karpenter sets too; with it, Kubernetes' garbage collector removes the Node of a
// vanished NodeClaim while this process is down.
func newNode(claim *karpv1.NodeClaim) *corev1.Node {
	name, _ := nodeOf(claim.Status.ProviderID)
	annotations := maps.Clone(claim.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[kwokapi.KwokLabelKey] = kwokapi.KwokLabelValue
	annotations[v1alpha1.AnnotationNodeClaim] = claim.Name
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      maps.Clone(claim.Labels),
			Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         nodeClaimVersion,
				Kind:               "NodeClaim",
				Name:               claim.Name,
				UID:                claim.UID,
				BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.NodeSpec{
			ProviderID: claim.Status.ProviderID,
			Taints:     []corev1.Taint{karpv1.UnregisteredNoExecuteTaint},
		},
		Status: corev1.NodeStatus{
			Capacity:    claim.Status.Capacity,
			Allocatable: claim.Status.Allocatable,
			Phase:       corev1.NodePending,
		},
	}
}
