package hollow_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

func TestHighIsRaisedAtItsFirstOverrunAndGoesBackAfterItsDwell(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "5s overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.has("at first", "a", 2_000, "low", 1)
	if got := n.reserved(1); got != 210_000 {
		t.Errorf("%d ppm are promised, want 210000: 2,000 us and a granularity of 100 us in 10,000 us", got)
	}
	n.pass(4999 * time.Millisecond)
	n.has("before", "a", 2_000, "low", 1)
	n.pass(time.Millisecond)
	n.has("after the overrun", "a", 4_000, "hi", 1)
	if s := n.server("a"); s.Overruns != 1 || !s.LastOverrunTime.Equal(&metav1.MicroTime{Time: begin.Add(5 * time.Second)}) {
		t.Errorf("%+v", s)
	}
	n.pass(999 * time.Millisecond) // 20 periods are 200 ms, the dwell is the longer of them and 1 s
	n.has("within the dwell", "a", 4_000, "hi", 1)
	n.pass(time.Millisecond)
	n.has("after the dwell", "a", 2_000, "low", 1)
	if n.reserved(1) != 210_000 {
		t.Errorf("%d ppm are promised after the recovery", n.reserved(1))
	}
}

func TestMiddleNeedsTwoOverrunsInTenPeriods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1; 1200ms overrun 1; 1250ms overrun 1")
	a := srv("a", "Middle", 1, 2_000, 4_000)
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.pass(1249 * time.Millisecond)
	n.has("two overruns 20 periods apart", "a", 2_000, "low", 1)
	n.pass(time.Millisecond)
	n.has("two overruns 5 periods apart", "a", 4_000, "hi", 1)
}

func TestSpecDecidesHowManyOverrunsItTakes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 3")
	a := srv("a", "High", 1, 2_000, 4_000)
	a.Overruns, a.Periods = 3, 3
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.pass(time.Second + 19*time.Millisecond)
	n.has("two of three", "a", 2_000, "low", 1)
	n.pass(time.Millisecond)
	n.has("three of three", "a", 4_000, "hi", 1)
}

func TestOnlyThePlanRaises(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 5")
	n.runs("b", "1s overrun 5")
	a, b := srv("a", "Low", 1, 2_000, 4_000), srv("b", "High", 1, 2_000, 4_000)
	partly := plan(1, 900_000, b)
	partly.Raise[0].ToUs = 3_000
	n.spec([]v1alpha1.RTServer{a, b}, partly)
	n.pass(2 * time.Second)
	n.has("not in the plan", "a", 2_000, "low", 1)
	if s := n.server("a"); s.Overruns != 5 {
		t.Errorf("%+v", s)
	}
	n.pass(-500 * time.Millisecond) // clocks jump: nothing goes back
	n.has("as far as the plan goes", "b", 3_000, "low", 1)
}

func TestLevelsAreClimbedOneByOne(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1; 1500ms overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	a.Levels = []v1alpha1.RTLevel{{Name: "medium", BudgetUs: 3_000}}
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.pass(1100 * time.Millisecond)
	n.has("first overrun", "a", 3_000, "medium", 1)
	n.pass(500 * time.Millisecond)
	n.has("second overrun", "a", 4_000, "hi", 1)
	n.pass(2 * time.Second)
	n.has("recovered", "a", 2_000, "low", 1)
}

func TestDwellDoublesWhenTheContainerEscalatesAgainSoon(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1; 3s overrun 1; 20s overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.pass(2500 * time.Millisecond)
	n.has("recovered at 2 s", "a", 2_000, "low", 1)
	n.pass(2 * time.Second)
	n.has("again at 3 s, for 2 s now", "a", 4_000, "hi", 1)
	n.pass(time.Second)
	n.has("recovered at 5 s", "a", 2_000, "low", 1)
	n.pass(15 * time.Second)
	n.has("again at 20 s", "a", 4_000, "hi", 1)
	n.pass(time.Second)
	n.has("for 1 s as at first", "a", 2_000, "low", 1)
}

func TestRaisesOfTheEscalationReserveComeOneByOne(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1")
	n.runs("b", "1004ms overrun 1")
	a, b := srv("a", "High", 3, 2_000, 4_000), srv("b", "High", 3, 2_000, 4_000)
	a.Limited, b.Limited, b.DwellUs = true, true, 5_000_000
	p := plan(3, 900_000, a, b)
	p.Test, p.MaxRaised = "T1k", 1
	n.spec([]v1alpha1.RTServer{a, b}, p)
	n.pass(1005 * time.Millisecond)
	n.has("the first", "a", 4_000, "hi", 3)
	n.has("the second waits", "b", 2_000, "low", 3)
	n.pass(994 * time.Millisecond)
	n.has("still", "b", 2_000, "low", 3)
	n.pass(time.Millisecond)
	n.has("the first recovers", "a", 2_000, "low", 3)
	n.has("the second takes its place in a period released then", "b", 4_000, "hi", 3)
}

func TestAPlaceForARaiseIsNotTakenInAPeriodReleasedBefore(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 1")
	a, b := srv("a", "High", 3, 2_000, 4_000), srv("b", "High", 3, 2_000, 4_000)
	a.Limited, b.Limited, b.PeriodUs, b.DeadlineUs = true, true, 30_000, 30_000
	p := plan(3, 900_000, a, b)
	p.MaxRaised = 1
	n.runs("b", "1998ms overrun 1") // its period was released at 1,980 ms
	n.spec([]v1alpha1.RTServer{a, b}, p)
	n.pass(2 * time.Second)
	n.has("recovered", "a", 2_000, "low", 3)
	n.has("in the period that overlaps", "b", 2_000, "low", 3)
	n.pass(10 * time.Millisecond)
	n.has("in the next", "b", 4_000, "hi", 3)
}
