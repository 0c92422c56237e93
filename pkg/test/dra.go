package test

import (
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// CoreDriver is the DRA driver of real-time cores.
	CoreDriver = "cpu.mckube.io"
	// CoreClass is the DeviceClass of real-time cores.
	CoreClass = "rt-core"
	// CoreCapacity is the capacity of a core that claims share, in parts per million of its time.
	CoreCapacity = "rtBandwidth"
	// CoreUsable is what of a core may be claimed, in parts per million.
	CoreUsable = 950_000
)

// CoreDeviceClass selects every device of the core driver.
func CoreDeviceClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: CoreClass},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", CoreDriver)},
		}}},
	}
}

// CoreShare is a template of claims for ppm parts per million of one core.
func CoreShare(name string, ppm int64) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{
				Name: "core",
				Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: CoreClass,
					Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
						CoreCapacity: *resource.NewQuantity(ppm, resource.DecimalSI),
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

// CoreSlice is what the core driver on node publishes: one device per core, each shared by claims.
func CoreSlice(node *corev1.Node, cores ...int) *resourcev1.ResourceSlice {
	usable := *resource.NewQuantity(CoreUsable, resource.DecimalSI)
	devices := make([]resourcev1.Device, len(cores))
	for i, core := range cores {
		devices[i] = resourcev1.Device{
			Name:                     fmt.Sprintf("core-%d", core),
			AllowMultipleAllocations: lo.ToPtr(true),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"coreID": {IntValue: lo.ToPtr(int64(core))},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{CoreCapacity: {Value: usable}},
		}
	}
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name + "-cores",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: lo.ToPtr(true),
			}},
		},
		Spec: resourcev1.ResourceSliceSpec{
			Driver:   CoreDriver,
			NodeName: &node.Name,
			Pool:     resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: 1},
			Devices:  devices,
		},
	}
}
