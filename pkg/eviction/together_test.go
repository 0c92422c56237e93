package eviction_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/eviction"
)

// runs is a ready pod.
func runs(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// allowsOne is a budget over all pods of a namespace.
func allowsOne(namespace string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}}
	b.Spec.Selector, b.Status.DisruptionsAllowed = &metav1.LabelSelector{}, 1
	return b
}

// Budgets are of namespaces: two pods are too many for the one that covers both, not for one each.
func TestTogether(t *testing.T) {
	lists := 0
	counting := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		lists++
		return c.List(ctx, list, options...)
	}}
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(allowsOne("a"), allowsOne("b")).Build(), counting)
	a1, a2, b1, c1 := runs("a", "1"), runs("a", "2"), runs("b", "1"), runs("c", "1")
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want []*corev1.Pod
	}{
		"one each": {[]*corev1.Pod{a1, b1, c1}, nil}, "two of one": {[]*corev1.Pod{b1, a1, c1, a2}, []*corev1.Pod{a1, a2}}, "none": {},
	} {
		lists = 0
		got, err := eviction.Together(t.Context(), c, tc.pods)
		if err != nil || len(got) != len(tc.want) {
			t.Fatalf("%s: %v, error %v", name, got, err)
		}
		for i, kept := range got {
			if kept.Pod != tc.want[i] || kept.Why != "PodDisruptionBudget one allows 1 disruptions now; 2 are needed" {
				t.Errorf("%s: %s/%s is kept: %s", name, kept.Pod.Namespace, kept.Pod.Name, kept.Why)
			}
		}
		if lists > 3 {
			t.Errorf("%s: asked %d times about 3 namespaces", name, lists)
		}
	}
}

func TestTogetherWithoutAnAnswer(t *testing.T) {
	lost := errors.New("connection reset by peer")
	c := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return lost },
	})
	if _, err := eviction.Together(t.Context(), c, []*corev1.Pod{runs("a", "1")}); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}
