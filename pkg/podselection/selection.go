// Package podselection matches pods with the selectors of a policy. It imports the API of kcloud.io alone.
package podselection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// Selection is which pods a policy is about.
type Selection struct {
	// Everything: it is about every pod.
	Everything bool
	pods       labels.Selector
	namespaces sets.Set[string] // nil: all
}

// Parse reads the selectors of a policy. The error names the field.
func Parse(s kcloudv1alpha1.Selection) (namespaces, pods labels.Selector, err error) {
	namespaces, pods = labels.Everything(), labels.Everything()
	if s.NamespaceSelector != nil {
		if namespaces, err = metav1.LabelSelectorAsSelector(s.NamespaceSelector); err != nil {
			return nil, nil, fmt.Errorf("spec.namespaceSelector: %w", err)
		}
	}
	if s.WorkloadSelector != nil {
		if pods, err = metav1.LabelSelectorAsSelector(s.WorkloadSelector); err != nil {
			return nil, nil, fmt.Errorf("spec.workloadSelector: %w", err)
		}
	}
	return namespaces, pods, nil
}

// Read reads which namespaces a policy selects.
func Read(ctx context.Context, c client.Reader, s kcloudv1alpha1.Selection) (Selection, error) {
	namespaces, pods, err := Parse(s)
	if err != nil {
		return Selection{}, err
	}
	out := Selection{Everything: s.Everything(), pods: pods}
	if s.NamespaceSelector == nil {
		return out, nil
	}
	list := &corev1.NamespaceList{}
	if err := c.List(ctx, list, client.MatchingLabelsSelector{Selector: namespaces}); err != nil {
		return Selection{}, fmt.Errorf("listing namespaces: %w", err)
	}
	out.namespaces = sets.New[string]()
	for i := range list.Items {
		out.namespaces.Insert(list.Items[i].Name)
	}
	return out, nil
}

// Has reports whether the policy is about a pod.
func (s Selection) Has(p *corev1.Pod) bool {
	return (s.namespaces == nil || s.namespaces.Has(p.Namespace)) && s.pods.Matches(labels.Set(p.Labels))
}
