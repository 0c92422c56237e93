package simulated_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// The page says what the code has.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/simulated-cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	machines, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("%d machines", len(machines.InstanceTypes)),
		v1alpha1.LabelHardwareClass, v1alpha1.LabelGPUModel, v1alpha1.LabelNPUModel, v1alpha1.LabelWattsIdle, v1alpha1.LabelWattsMax, v1alpha1.LabelDeviceWattsIdle, v1alpha1.LabelDeviceWattsMax,
		v1alpha1.LabelReservationID, v1alpha1.AnnotationPricePerHour, v1alpha1.AnnotationImage, v1alpha1.AnnotationInstance,
		v1alpha1.AnnotationNodeClaim, v1alpha1.AnnotationTerminateAt, v1alpha1.AnnotationFailedBy, v1alpha1.ResourceGPUMilli,
		string(v1alpha1.FaultShortage), string(v1alpha1.FaultSpotInterruption), string(v1alpha1.FaultSlowRegistration),
		string(v1alpha1.FaultFailedRegistration), string(v1alpha1.FaultNodeFailure),
		v1alpha1.DriverCPU, v1alpha1.CapacityRTBandwidth, v1alpha1.AttributeCoreID, v1alpha1.AttributeNUMANode, v1alpha1.AttributeSMTSibling,
		v1alpha1.AttributeBackend, v1alpha1.AttributeGranularity, v1alpha1.AttributeEscalationReserve,
	}
	for _, it := range machines.InstanceTypes {
		for _, devices := range []*catalogue.Devices{it.GPUs, it.NPUs} {
			if devices != nil {
				want = append(want, devices.Resource)
			}
		}
		if it.Class == catalogue.GPU {
			want = append(want, it.GPUs.Model)
		}
		if it.Reserved != nil {
			want = append(want, "`"+strings.SplitN(it.Name, "-amd64", 2)[0]+"`")
		}
	}
	for _, w := range want {
		if w == "`v100m32-8g-96x`" {
			w = "8 x V100M32"
		}
		if !strings.Contains(string(page), w) {
			t.Errorf("the page does not mention %s", w)
		}
	}
}
