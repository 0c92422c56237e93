package simulated

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// KwokInstanceTypes returns the instance types of Karpenter's kwok provider that a catalogue does not have: Windows, the largest sizes, arm64 beyond those of
// the catalogue. Nothing is known of their watts and cores.
func KwokInstanceTypes(c *catalogue.Catalogue) ([]*cloudprovider.InstanceType, error) {
	types, err := kwok.ConstructInstanceTypes(kwokoptions.ToContext(context.Background(), &kwokoptions.Options{}))
	if err != nil {
		return nil, fmt.Errorf("reading the instance types of Karpenter's kwok provider: %w", err)
	}
	return slices.DeleteFunc(types, func(it *cloudprovider.InstanceType) bool {
		_, has := c.Lookup(it.Name)
		return has
	}), nil
}

// namingKeys are the labels by whose values a NodePool names instance types. Architecture and family are not among them: the catalogue has each of theirs.
var namingKeys = []string{
	corev1.LabelInstanceTypeStable, corev1.LabelOSStable, kwokapi.InstanceSizeLabelKey, kwokapi.InstanceCPULabelKey, kwokapi.InstanceMemoryLabelKey,
}

// labelValue is a value of a label.
type labelValue struct{ key, value string }

// ownValues returns the values of namingKeys that types have and others do not.
func ownValues(types, others []*cloudprovider.InstanceType) map[labelValue]bool {
	own := map[labelValue]bool{}
	each := func(of []*cloudprovider.InstanceType, do func(labelValue)) {
		for _, it := range of {
			for _, key := range namingKeys {
				for _, value := range it.Requirements.Get(key).Values() {
					do(labelValue{key, value})
				}
			}
		}
	}
	each(types, func(v labelValue) { own[v] = true })
	each(others, func(v labelValue) { delete(own, v) })
	return own
}

// names reports whether a NodePool's labels or requirements name one of the values.
func names(nodePool *karpv1.NodePool, values map[labelValue]bool) bool {
	for key, value := range nodePool.Spec.Template.Labels {
		if values[labelValue{key, value}] {
			return true
		}
	}
	return slices.ContainsFunc(nodePool.Spec.Template.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
		return r.Operator == corev1.NodeSelectorOpIn && slices.ContainsFunc(r.Values, func(value string) bool { return values[labelValue{r.Key, value}] })
	})
}
