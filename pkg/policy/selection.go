package policy

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Select finds the policy that holds for a pod with labels in a namespace with labels: of those that select both the most
// specific, which is the one with most labels and expressions in its two selectors, then the first by name. A policy that
// is being deleted holds no longer, and one whose selectors cannot be read selects nothing. nil: there is none.
func Select(all []v1alpha1.MigrationPolicy, pod, namespace map[string]string) *v1alpha1.MigrationPolicy {
	var best *v1alpha1.MigrationPolicy
	for i := range all {
		p := &all[i]
		if p.DeletionTimestamp.IsZero() && selects(p.Spec.Selector, pod) && selects(p.Spec.NamespaceSelector, namespace) &&
			(best == nil || before(p, best) < 0) {
			best = p
		}
	}
	return best
}

// before orders policies: those that hold before others first.
func before(a, b *v1alpha1.MigrationPolicy) int {
	return cmp.Or(cmp.Compare(specificity(b), specificity(a)), cmp.Compare(a.Name, b.Name))
}

func specificity(p *v1alpha1.MigrationPolicy) (n int) {
	for _, s := range []*metav1.LabelSelector{p.Spec.Selector, p.Spec.NamespaceSelector} {
		if s != nil {
			n += len(s.MatchLabels) + len(s.MatchExpressions)
		}
	}
	return n
}

// selects tells whether the selector takes the labels; a missing one takes all.
func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// title of a policy, for messages.
func title(p *v1alpha1.MigrationPolicy) string { return fmt.Sprintf("MigrationPolicy %s", p.Name) }
