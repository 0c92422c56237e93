package ladder_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// pair has both pods ready under one budget that allows a number of disruptions.
func (e *eviction) pair(allowed int32) *policyv1.PodDisruptionBudget {
	e.Helper()
	for _, name := range []string{"low", "little"} {
		p := e.pod(name)
		p.Labels["app"] = "pair"
		e.must(e.api.Update(e.Context(), p))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		e.must(e.api.Status().Update(e.Context(), p))
	}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "pair"}}
	b.Spec.MaxUnavailable, b.Spec.Selector = ptr.To(intstr.FromInt32(1)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pair"}}
	e.must(e.api.Create(e.Context(), b))
	e.allows(b, allowed)
	return b
}

// allows sets how many pods the budget lets go now.
func (e *eviction) allows(b *policyv1.PodDisruptionBudget, n int32) {
	e.Helper()
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: n, CurrentHealthy: 2, DesiredHealthy: 2 - n, ExpectedPods: 2}
	e.must(e.api.Status().Update(e.Context(), b))
}

// Each of two pods may go, but not both: the first would go in vain.
func TestNoPodIsEvictedWhileOneBudgetBlocksOneOfTwo(t *testing.T) {
	e := newEviction(t)
	b := e.pair(1)
	e.live()
	for range 3 {
		e.is(e.step(rules.Running), "", false, "pod "+e.namespace+"/low may not be evicted yet: PodDisruptionBudget pair allows 1 disruptions now; 2 are needed")
	}
	e.here("low", "little")
	e.allows(b, 2)
	e.is(e.step(rules.Running), "", false, "evicted pod "+e.namespace+"/low")
	e.is(e.step(rules.Running), "", false, "evicted pod "+e.namespace+"/little")
}

// An action that was called off meanwhile leaves both.
func TestAPairThatABudgetKeepsIsLeftWhenItIsCalledOff(t *testing.T) {
	e := newEviction(t)
	e.pair(1)
	e.live()
	e.step(rules.Running)
	e.is(e.step(rules.RollingBack), rules.RolledBack, false, "nobody was evicted")
	e.here("low", "little")
}
