package history

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

func object(name string, revision int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(revision)}
}

func node(name string, revision int, taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: object(name, revision)}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key})
	}
	return n
}

// claim is an initialised NodeClaim of pool "p", on the node of the same name, for 0.5 USD per hour.
func claim(name string, revision int) *karpenterv1.NodeClaim {
	c := &karpenterv1.NodeClaim{ObjectMeta: object(name, revision)}
	c.Labels = map[string]string{karpenterv1.NodePoolLabelKey: "p"}
	c.Annotations = map[string]string{mckubev1alpha1.AnnotationPricePerHour: "0.5"}
	c.Status.NodeName = name
	c.StatusConditions().SetTrue(karpenterv1.ConditionTypeInitialized)
	return c
}

func deleting(c *karpenterv1.NodeClaim, reason string) *karpenterv1.NodeClaim {
	c.DeletionTimestamp = &metav1.Time{}
	*c.DeletionTimestamp = metav1.Unix(1, 0)
	c.StatusConditions().SetTrueWithReason(karpenterv1.ConditionTypeDisruptionReason, reason, reason)
	return c
}

func record(t *testing.T, versions ...Version) History {
	t.Helper()
	for i := range versions {
		v, err := newVersion(versions[i].Type, versions[i].Object, false)
		if err != nil {
			t.Fatal(err)
		}
		versions[i] = v
	}
	return newHistory(versions)
}

// replacement is: a and b run; a is tainted; c comes up; a is told to go, and goes. The versions are
// given kind by kind, as watches deliver them.
func replacement(t *testing.T) History {
	return record(t,
		Version{Type: watch.Added, Object: node("a", 2)},
		Version{Type: watch.Added, Object: node("b", 4)},
		Version{Type: watch.Modified, Object: node("a", 5, karpenterv1.DisruptedTaintKey)},
		Version{Type: watch.Added, Object: node("c", 7)},
		Version{Type: watch.Deleted, Object: node("a", 9)},
		Version{Type: watch.Added, Object: claim("a", 1)},
		Version{Type: watch.Added, Object: claim("b", 3)},
		Version{Type: watch.Added, Object: claim("c", 6)},
		Version{Type: watch.Modified, Object: deleting(claim("a", 8), "Drifted")},
		Version{Type: watch.Deleted, Object: deleting(claim("a", 10), "Drifted")},
	)
}

func TestQueriesSeeEveryMoment(t *testing.T) {
	h := replacement(t)
	if most, when := h.MostDisrupting("p"); most != 1 || when.Revision != 5 {
		t.Errorf("most disrupting: %d at %d, want 1 at 5", most, when.Revision)
	}
	if most, _ := h.MostDisrupting("other"); most != 0 {
		t.Errorf("another pool has %d nodes being disrupted", most)
	}
	if fewest, when := h.Since(4).FewestInitialized("p"); fewest != 1 || when.Revision != 5 {
		t.Errorf("fewest initialised since 4: %d at %d, want 1 at 5", fewest, when.Revision)
	}
	if got := h.Created(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("created %v", got)
	}
	if got := h.Disrupted(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("disrupted %v", got)
	}
	if got := h.DisruptionReason("a"); got != "Drifted" {
		t.Errorf("reason %q", got)
	}
	if got := h.Last().PricePerHour(); got != 1 {
		t.Errorf("price at the end %g, want 1", got)
	}
	told, ok := h.StateAtDeletion("a")
	if !ok || told.Revision != 8 || !slices.Equal(told.Initialized("p"), []string{"b", "c"}) {
		t.Errorf("state at deletion: %t, %d, %v", ok, told.Revision, told.Initialized("p"))
	}
}

func TestSinceKeepsTheStateBefore(t *testing.T) {
	var revisions []uint64
	var claims []int
	replacement(t).Since(6).Walk(func(s State) {
		revisions = append(revisions, s.Revision)
		claims = append(claims, len(s.NodeClaims))
	})
	if !slices.Equal(revisions, []uint64{6, 7, 8, 9, 10}) || !slices.Equal(claims, []int{3, 3, 3, 3, 2}) {
		t.Errorf("walked %v with %v claims", revisions, claims)
	}
}

func TestEventsAreFilteredByReasonAndName(t *testing.T) {
	event := func(revision int, reason, about string) Version {
		return Version{Type: watch.Added, Object: &corev1.Event{
			ObjectMeta: object(fmt.Sprint("e", revision), revision), Reason: reason,
			InvolvedObject: corev1.ObjectReference{Name: about},
		}}
	}
	h := record(t, event(1, "Evicted", "x"), event(2, "Evicted", "y"), event(3, "Disrupted", "x"))
	for _, tc := range []struct {
		reason, name string
		want         int
	}{{"", "", 3}, {"Evicted", "", 2}, {"Evicted", "y", 1}, {"", "x", 2}, {"Launched", "x", 0}} {
		if got := len(h.Events(tc.reason, tc.name)); got != tc.want {
			t.Errorf("events %q about %q: %d, want %d", tc.reason, tc.name, got, tc.want)
		}
	}
}
