package v1alpha1_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// What Pin adds Unpinned takes away, and nothing else.
func TestUnpinned(t *testing.T) {
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"z"}}
	terms := func(list ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: list}}}
	}
	for name, a := range map[string]*corev1.Affinity{
		"none":    nil,
		"one":     terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}),
		"several": terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{zone}}),
		"pods":    {PodAntiAffinity: &corev1.PodAntiAffinity{}},
	} {
		plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"x": "y"}}, Spec: corev1.PodSpec{Affinity: a}}
		pinned := plain.DeepCopy()
		v1alpha1.Pin(pinned, "n")
		for _, term := range pinned.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			if f := term.MatchFields[len(term.MatchFields)-1]; f.Key != "metadata.name" || f.Values[0] != "n" {
				t.Errorf("%s: a term without the node: %+v", name, term)
			}
		}
		if got := v1alpha1.Unpinned(pinned); !reflect.DeepEqual(got, plain) {
			t.Errorf("%s: %+v", name, got)
		}
		if got := v1alpha1.Unpinned(plain); got != plain {
			t.Errorf("%s: changed without a pin", name)
		}
	}
}
