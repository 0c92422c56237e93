package hollow_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

func TestControllerAsksForALevel(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	a.Level = "hi"
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.has("asked for", "a", 4_000, "hi", 1)
	n.pass(10 * time.Second)
	n.has("the dwell of an overrun does not end it", "a", 4_000, "hi", 1)
	a.Level = "low"
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.has("given back", "a", 2_000, "low", 1)
}

func TestReservedModeHasTheHighBudgetFromTheStart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	a.Mode = "Reserved"
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.has("at first", "a", 4_000, "low", 1)
	n.pass(time.Second)
	n.has("after an overrun", "a", 4_000, "hi", 1)
	n.pass(time.Second)
	n.has("recovered", "a", 4_000, "low", 1)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	twoCores := srv("a", "High", 1, 1_000, 2_000)
	twoCores.Cores = []int32{1, 2}
	backwards := srv("a", "High", 1, 2_000, 1_000)
	elsewhere := srv("b", "High", 1, 1_000, 2_000)
	for want, s := range map[string]v1alpha1.RTServer{
		`pod default/b has no container "app" on this node`:                               elsewhere,
		"core 7 takes no real-time work; want one of [1 2 3]":                             srv("a", "High", 7, 1_000, 2_000),
		"cores has 2 entries; want one core":                                              twoCores,
		"budgets 2000 us and 1000 us in a period of 10000 us; want low <= high <= period": backwards,
		"core 1: a budget of 9000 us needs 910000 ppm, 0 of 900000 ppm are promised":      srv("a", "High", 1, 9_000, 9_000),
	} {
		n := newNode(t)
		n.runs("a", "")
		n.spec([]v1alpha1.RTServer{s})
		status := n.Status()
		if status.Servers[0].Error != want || status.Servers[0].BudgetUs != 0 {
			t.Errorf("%+v, want %q", status.Servers[0], want)
		}
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		if ready.Status != metav1.ConditionFalse || ready.Reason != "SpecRefused" || !strings.HasPrefix(ready.Message, "1 of 1") {
			t.Errorf("condition %+v", ready)
		}
	}
}

func TestWhatIsInForceStaysWhenASpecExceedsTheCore(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, pod := range []string{"a", "b", "c"} {
		n.runs(pod, "")
	}
	a := srv("a", "Low", 1, 5_000, 5_000)
	n.spec([]v1alpha1.RTServer{a})
	n.spec([]v1alpha1.RTServer{srv("b", "Middle", 1, 3_500, 3_500), srv("c", "High", 1, 3_500, 3_500), a})
	n.has("in force", "a", 5_000, "low", 1)
	n.has("the most critical newcomer", "c", 3_500, "low", 1)
	if s := n.server("b"); !strings.Contains(s.Error, "needs 360000 ppm, 870000 of 900000 ppm") {
		t.Errorf("%+v", s)
	}
	a.BudgetLowUs, a.BudgetHighUs = 6_000, 6_000
	n.spec([]v1alpha1.RTServer{a, srv("c", "High", 1, 3_500, 3_500)})
	if s := n.server("a"); s.BudgetUs != 5_000 || !strings.Contains(s.Error, "a budget of 6000 us") {
		t.Errorf("a larger budget without room: %+v", s)
	}
}

func TestANewcomerGetsItsLowBudgetWhereTheOneAskedForHasNoRoom(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "")
	n.runs("b", "1s overrun 1")
	a, b := srv("a", "Low", 1, 5_000, 5_000), srv("b", "High", 1, 2_000, 4_000)
	b.Level = "hi"
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, b))
	n.spec([]v1alpha1.RTServer{a, b}, plan(1, 900_000, b))
	n.pass(2 * time.Second)
	if s := n.server("b"); s.BudgetUs != 2_000 || s.Level != "low" || !strings.Contains(s.Error, "a budget of 4000 us") {
		t.Errorf("%+v", s)
	}
	delete(n.view.Containers, hollow.Key{Pod: "a", Container: "app"})
	n.pass(time.Millisecond)
	n.pass(10 * time.Millisecond)
	n.has("when the other has ended", "b", 4_000, "hi", 1)
}

func TestBandwidthIsFreeAtTheDeadline(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "")
	n.runs("b", "")
	n.spec([]v1alpha1.RTServer{srv("a", "Low", 1, 6_000, 6_000)})
	n.pass(3 * time.Millisecond)
	n.spec([]v1alpha1.RTServer{srv("a", "Low", 2, 6_000, 6_000), srv("b", "High", 1, 5_000, 5_000)})
	n.has("moved at once", "a", 6_000, "low", 2)
	n.has("waits", "b", 0, "low", 1)
	if n.reserved(1) != 610_000 {
		t.Errorf("%d ppm of core 1 are promised", n.reserved(1))
	}
	if at, ok := n.Next(); !ok || !at.Equal(begin.Add(10*time.Millisecond)) {
		t.Errorf("next at %s, want the end of the period", at.Sub(begin))
	}
	n.pass(7 * time.Millisecond)
	n.has("at the deadline of what was there", "b", 5_000, "low", 1)
}
