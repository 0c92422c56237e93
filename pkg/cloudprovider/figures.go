package cloudprovider

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// maxPrice is above what any machine costs, in USD per hour.
const maxPrice = 1e9

// UsablePrice reports whether a price says something. Zero, negative and absurd ones, and those that are no number, say nothing.
func UsablePrice(dollars float64) bool { return dollars > 0 && dollars <= maxPrice }

// PriceAt returns the price of a machine with these labels, in USD per hour: that of the offering that they name; false
// where there is none.
func PriceAt(types []*cloudprovider.InstanceType, labels map[string]string) (float64, bool) {
	at := scheduling.NewLabelRequirements(labels)
	for _, it := range types {
		if it.Name != labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		for _, o := range it.Offerings {
			if UsablePrice(o.Price) && at.Compatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) == nil {
				return o.Price, true
			}
		}
	}
	return 0, false
}

// PriceOfMachine returns the price of a Node or NodeClaim, in USD per hour: that of its offering or, where there is
// none, what the provider has written on it.
func PriceOfMachine(types []*cloudprovider.InstanceType, labels, annotations map[string]string) (float64, bool) {
	if price, ok := PriceAt(types, labels); ok {
		return price, true
	}
	price, err := strconv.ParseFloat(annotations[v1alpha1.AnnotationPricePerHour], 64)
	if err != nil || !UsablePrice(price) {
		return 0, false
	}
	return price, true
}

// PowerOfMachine returns the power of a Node or NodeClaim by its labels, or by the default model of its capacity where there are none.
func PowerOfMachine(labels map[string]string, capacity corev1.ResourceList) powermodel.Machine {
	if m, known := powermodel.FromLabels(labels); known {
		return m
	}
	return powermodel.Default(capacity)
}

// PowerOf returns the power of an instance type by the labels that its nodes will have, or by the default model where there are none.
func PowerOf(it *cloudprovider.InstanceType) powermodel.Machine {
	labels := map[string]string{}
	for _, r := range it.Requirements {
		if r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
			labels[r.Key] = r.Values()[0]
		}
	}
	return PowerOfMachine(labels, it.Capacity)
}

// MostWatts is the most that a machine of the type draws. Machines of one type may differ; those without labels draw
// what the default model says.
func MostWatts(it *cloudprovider.InstanceType) float64 {
	values := it.Requirements.Get(v1alpha1.LabelWattsMax)
	if values.Operator() != corev1.NodeSelectorOpIn || values.Len() < 2 {
		return PowerOf(it).Whole().Max
	}
	most := powermodel.Default(it.Capacity).Whole().Max
	for _, value := range values.Values() {
		if watts, err := strconv.ParseFloat(value, 64); err == nil && !math.IsInf(watts, 0) {
			most = max(most, watts)
		}
	}
	return most
}
