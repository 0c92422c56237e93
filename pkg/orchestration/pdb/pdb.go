// Package pdb says what evicting a pod takes from PodDisruptionBudgets, as the API server's eviction does. Pure.
package pdb

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Covering are the budgets, all of the pod's namespace, that have a say in its eviction. With more than one the API
// server refuses it.
func Covering(budgets []policyv1.PodDisruptionBudget, pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var out []*policyv1.PodDisruptionBudget
	for i := range budgets {
		if Covers(&budgets[i], pod) {
			out = append(out, &budgets[i])
		}
	}
	return out
}

// Covers tells whether a budget has a say in the eviction of a pod. None has where the pod does not run: it cannot be
// disrupted.
func Covers(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	if b.Namespace != pod.Namespace || !disrupts(pod) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// disrupts tells whether evicting the pod disrupts anything.
func disrupts(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed:
		return false
	}
	return pod.DeletionTimestamp == nil
}

// Index has budgets by namespace, to be asked about many pods.
type Index map[string][]entry

type entry struct {
	budget   *policyv1.PodDisruptionBudget
	selector labels.Selector
}

// NewIndex indexes budgets, which it keeps.
func NewIndex(budgets []policyv1.PodDisruptionBudget) Index {
	out := Index{}
	for i := range budgets {
		b := &budgets[i]
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
			out[b.Namespace] = append(out[b.Namespace], entry{b, selector})
		}
	}
	return out
}

// Covering are the budgets that have a say in a pod's eviction, as those of the function.
func (x Index) Covering(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	if !disrupts(pod) {
		return nil
	}
	var out []*policyv1.PodDisruptionBudget
	for _, e := range x[pod.Namespace] {
		if e.selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, e.budget)
		}
	}
	return out
}

// Allowed is how many pods the budget lets go now. A budget that its controller has not looked at since it was changed
// allows none.
func Allowed(b *policyv1.PodDisruptionBudget) int {
	if b.Status.ObservedGeneration < b.Generation {
		return 0
	}
	return int(b.Status.DisruptionsAllowed)
}

// Most is how many pods the budget lets go with all of them in good order, as far as its controller has looked.
func Most(b *policyv1.PodDisruptionBudget) int {
	return int(max(0, b.Status.ExpectedPods-b.Status.DesiredHealthy))
}

// Charges tells whether evicting the pod, which the budget covers, takes from it: what is not ready only as far as the
// budget's policy says so.
func Charges(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if ready {
		return true
	}
	if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return false
	}
	return b.Status.CurrentHealthy < b.Status.DesiredHealthy || b.Status.DesiredHealthy == 0
}

// Kept is a pod that may not go now, and why.
type Kept struct {
	Pod *corev1.Pod
	Why string
}

// Overdrawn are those of some pods that are to go together which a budget covers, when they are more than it lets go now. The
// eviction API judges one pod at a time: it would let the first go and keep the second.
func Overdrawn(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) []Kept {
	var out []Kept
	for _, pod := range pods {
		if Covers(b, pod) && Charges(b, pod) {
			out = append(out, Kept{Pod: pod})
		}
	}
	if len(out) <= Allowed(b) {
		return nil
	}
	for i := range out {
		out[i].Why = overdrawn(b, len(out))
	}
	return out
}
