package pdb_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
)

// budget covers pods whose label app is x.
func budget(change func(*policyv1.PodDisruptionBudget)) policyv1.PodDisruptionBudget {
	b := policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b", Generation: 2},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1},
	}
	if change != nil {
		change(&b)
	}
	return b
}

func pod(phase corev1.PodPhase, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "x"}}}
	p.Status.Phase = phase
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestCovering(t *testing.T) {
	elsewhere := budget(func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" })
	others := budget(func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "y" })
	all := []policyv1.PodDisruptionBudget{budget(nil), elsewhere, others, budget(nil)}
	ending := pod(corev1.PodRunning, true)
	ending.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want int
	}{
		"runs": {pod(corev1.PodRunning, true), 2}, "is not ready": {pod(corev1.PodRunning, false), 2}, "pending": {pod(corev1.PodPending, false), 0},
		"succeeded": {pod(corev1.PodSucceeded, false), 0}, "failed": {pod(corev1.PodFailed, false), 0}, "is being deleted": {ending, 0},
	} {
		if got := pdb.Covering(all, c.pod); len(got) != c.want {
			t.Errorf("%s: %d budgets, want %d", name, len(got), c.want)
		}
		if got, want := pdb.NewIndex(all).Covering(c.pod), pdb.Covering(all, c.pod); !slices.Equal(got, want) {
			t.Errorf("%s: the index has %v, want %v", name, got, want)
		}
	}
}

func TestAllowed(t *testing.T) {
	current := budget(nil)
	stale := budget(func(b *policyv1.PodDisruptionBudget) { b.Generation = 3 })
	if pdb.Allowed(&current) != 1 || pdb.Allowed(&stale) != 0 {
		t.Errorf("allowed %d, and %d where nobody has looked at it", pdb.Allowed(&current), pdb.Allowed(&stale))
	}
}

func TestMost(t *testing.T) {
	for name, c := range map[string]struct {
		expected, desired int32
		want              int
	}{"two may be away": {5, 3, 2}, "none may": {3, 3, 0}, "more are wanted than there are": {1, 3, 0}} {
		b := budget(func(b *policyv1.PodDisruptionBudget) {
			b.Status.ExpectedPods, b.Status.DesiredHealthy, b.Status.CurrentHealthy = c.expected, c.desired, 0
		})
		if got := pdb.Most(&b); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// As the API server's eviction does.
func TestCharges(t *testing.T) {
	always := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
	}
	healthy := func(current, desired int32) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy, b.Status.DesiredHealthy = current, desired
		}
	}
	for name, c := range map[string]struct {
		change func(*policyv1.PodDisruptionBudget)
		ready  bool
		want   bool
	}{
		"ready": {nil, true, true}, "ready, whatever the policy": {always, true, true}, "not ready, enough others are": {nil, false, false},
		"not ready, too few are": {healthy(0, 1), false, true}, "not ready, none is wanted": {healthy(0, 0), false, true}, "not ready may always go": {always, false, false},
	} {
		b := budget(c.change)
		if got := pdb.Charges(&b, pod(corev1.PodRunning, c.ready)); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// Pods that are to go together are too many for a budget even where each of them may go.
func TestOverdrawn(t *testing.T) {
	one, other := pod(corev1.PodRunning, true), pod(corev1.PodRunning, true)
	second := pod(corev1.PodRunning, true)
	other.Labels["app"] = "y"
	spare := func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 2 }
	none := func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 0 }
	changed := func(b *policyv1.PodDisruptionBudget) { b.Generation = 3 }
	always := func(b *policyv1.PodDisruptionBudget) {
		none(b)
		b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
	}
	for name, c := range map[string]struct {
		change func(*policyv1.PodDisruptionBudget)
		pods   []*corev1.Pod
		want   int
	}{
		"allowed":                {nil, []*corev1.Pod{one}, 0},
		"one of two is too many": {nil, []*corev1.Pod{one, second}, 2}, "both are allowed": {spare, []*corev1.Pod{one, second}, 0},
		"none is allowed": {none, []*corev1.Pod{one}, 1}, "one is not covered": {nil, []*corev1.Pod{one, other}, 0},
		"what does not run":            {none, []*corev1.Pod{pod(corev1.PodPending, false)}, 0},
		"not ready, enough others are": {none, []*corev1.Pod{pod(corev1.PodRunning, false)}, 0},
		"not ready may always go":      {always, []*corev1.Pod{pod(corev1.PodRunning, false)}, 0}, "nobody has looked at it yet": {changed, []*corev1.Pod{one}, 1},
	} {
		b := budget(c.change)
		got := pdb.Overdrawn(&b, c.pods)
		if len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
		for i, k := range got {
			want := fmt.Sprintf("PodDisruptionBudget b allows %d disruptions now; %d are needed", pdb.Allowed(&b), c.want)
			if k.Pod != c.pods[i] || k.Why != want {
				t.Errorf("%s: %s is kept because %q, want %q", name, k.Pod.Name, k.Why, want)
			}
		}
	}
}
