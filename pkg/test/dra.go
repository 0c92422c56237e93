package test

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// CoreShare is a template of claims for ppm parts per million of one core, without a McKube.
func CoreShare(name string, ppm int64) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{
				Name: mckubev1alpha1.RequestCore,
				Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: mckubev1alpha1.DeviceClassRTCore,
					Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
						mckubev1alpha1.CapacityRTBandwidth: *resource.NewQuantity(ppm, resource.DecimalSI),
					}},
				},
			}},
		}}},
	}
}

// Claims gives each pod a claim of its own from the template.
func Claims(template string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "core", ResourceClaimTemplateName: &template}}
		t.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "core"}}
	}
}
