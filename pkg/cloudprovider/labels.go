package cloudprovider

import (
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// machineLabels are the label keys that decorated instance types define, each with a value or as
// absent.
var machineLabels = []string{
	v1alpha1.LabelHardwareClass,
	v1alpha1.LabelGPUModel,
	v1alpha1.LabelNPUModel,
	v1alpha1.LabelWattsIdle,
	v1alpha1.LabelWattsMax,
	v1alpha1.LabelDeviceWattsIdle,
	v1alpha1.LabelDeviceWattsMax,
}

// RegisterLabels makes our machine labels known to Karpenter, so that NodePools and pods may select
// on them, and names the label of capacity reservations. These are package variables of Karpenter:
// the assembly calls this once, before any controller runs, and tests before they start theirs.
func RegisterLabels() {
	karpv1.WellKnownLabels = karpv1.WellKnownLabels.Insert(machineLabels...)
	karpv1.WellKnownLabels = karpv1.WellKnownLabels.Insert(v1alpha1.LabelReservationID)
	cloudprovider.ReservationIDLabel = v1alpha1.LabelReservationID
	cloudprovider.ReservedCapacityLabels.Insert(v1alpha1.LabelReservationID)
}
