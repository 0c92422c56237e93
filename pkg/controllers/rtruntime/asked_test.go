package rtruntime_test

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
)

// ask has an overrun of the pod's container reported.
func (m *machine) ask(t testing.TB, pod string, timestamp uint64, at time.Time) bool {
	t.Helper()
	annotation, news, err := rtruntime.Ask(m.rtNode, pod+"/app", timestamp, at)
	if err != nil {
		t.Fatal(err)
	}
	if news {
		m.rtNode = m.rtNode.DeepCopy()
		m.rtNode.Annotations = map[string]string{v1alpha1.AnnotationAsked: annotation}
	}
	return news
}

// A reported overrun raises its container, and no other, until the container's recovery delay is over; a further one
// begins the delay anew.
func TestAReportedOverrunRaisesItsContainerForAWhile(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(start)
	m := newMachine(1)
	m.add("high", "High", 20, 40, 0)
	m.add("low", "Low", 10, 45, 0) // for which its core has no room
	m.add("middle", "Middle", 10, 20, 0).Spec.Escalation = recoveryDelay(2 * time.Second)
	var p rtruntime.Pressure
	step := func(after time.Duration, want string, wake time.Duration) {
		t.Helper()
		clock.Step(after)
		d := m.settle(t, p, clock.Now())
		expectSpec(t, d, want)
		if d.Wake != wake {
			t.Errorf("wakes after %s, want %s", d.Wake, wake)
		}
		p = d.Pressure
	}
	const calm = "high@0 low 20/40, low@0 low 10/45, middle@0 low 10/20"
	step(0, calm, 0)
	clock.Step(time.Hour)
	m.ask(t, "high", 7, clock.Now())
	m.ask(t, "low", 7, clock.Now())
	step(0, "high@0 hi 20/40, low@0 low 10/45, middle@0 low 10/20", 5*time.Second)
	if m.ask(t, "high", 7, clock.Now()) || m.ask(t, "high", 6, clock.Now()) {
		t.Error("a repetition was news")
	}
	step(2*time.Second, "high@0 hi 20/40, low@0 low 10/45, middle@0 low 10/20", 3*time.Second)
	m.ask(t, "middle", 7, clock.Now())
	m.ask(t, "high", 8, clock.Now())
	step(0, "high@0 hi 20/40, low@0 low 10/45, middle@0 hi 10/20", 2*time.Second)
	step(2*time.Second, "high@0 hi 20/40, low@0 low 10/45, middle@0 low 10/20", 3*time.Second)
	m.busy(true)
	step(3*time.Second, "high@0 hi 20/40, low@0 low 10/45, middle@0 hi 10/20", 0)
	m.busy(false) // the node has to be calm for as long, too
	step(time.Second, "high@0 hi 20/40, low@0 low 10/45, middle@0 hi 10/20", 2*time.Second)
	step(5*time.Second, "high@0 hi 20/40, low@0 low 10/45, middle@0 low 10/20", time.Second) // one by one
	step(time.Second, calm, 0)
	if m.ask(t, "high", 8, clock.Now()) {
		t.Error("a replay after the end was news")
	}
	step(time.Hour, calm, 0)
}

// The bound of T1k holds for reported overruns as for pressure: one raise at a time. The container whose overrun the
// agent reported gets it even when more critical ones are on the core that do not want it.
func TestReportedOverrunsStayWithinThePlan(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.cores[0].EscalationReserve = 200_000
	m.cores[0].Capacity = 600_000
	limited := &mcv1.Escalation{Admission: mcv1.AdmissionLimited}
	m.add("a", "High", 10, 20, 0).Spec.Escalation = limited
	m.add("b", "Middle", 10, 20, 0).Spec.Escalation = limited
	m.claim("a", 0)
	m.claim("b", 0)
	m.settle(t, rtruntime.Pressure{}, start)
	m.ask(t, "b", 1, start)
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "a@0 low 10/20, b@0 hi 10/20")
	m.ask(t, "a", 1, start)
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "a@0 hi 10/20, b@0 low 10/20")
	if len(d.NoRoom) != 1 || d.NoRoom[0] != "b/app" {
		t.Errorf("without room: %v", d.NoRoom)
	}
}

// An annotation that another writer wrote raises no container for longer than the delay. One that the controller cannot
// read raises none.
func TestWhateverIsWrittenIntoTheAnnotationEnds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "nonsense", "[]", "null", `{"high/app":null}`, `{"high/app":{"timestamp":1}}`,
		fmt.Sprintf(`{"high/app":{"timestamp":1,"at":%q}}`, start.Add(100*365*24*time.Hour).Format(time.RFC3339)),
		fmt.Sprintf(`{"high/app":{"timestamp":1,"at":%q}}`, start.Add(-time.Minute).Format(time.RFC3339)),
	} {
		m := newMachine(1)
		m.add("high", "High", 20, 40, 0)
		m.settle(t, rtruntime.Pressure{}, start)
		m.rtNode.Annotations = map[string]string{v1alpha1.AnnotationAsked: text}
		if d := m.settle(t, rtruntime.Pressure{}, start); d.Spec.Servers[0].Level != v1alpha1.LevelLow {
			t.Errorf("%s: level %s", text, d.Spec.Servers[0].Level)
		}
	}
}

// The annotation stays bounded, and the newest reports are in it.
func TestTheAnnotationIsBounded(t *testing.T) {
	t.Parallel()
	for _, reports := range []int{1, 256, 258} {
		r := &v1alpha1.RTNode{}
		for i := range 258 {
			r.Spec.Servers = append(r.Spec.Servers, v1alpha1.RTServer{PodUID: "00000000-0000-4000-8000-000000000000", Container: fmt.Sprintf("container-%d", i)})
		}
		for i := range reports {
			id := fmt.Sprintf("00000000-0000-4000-8000-000000000000/container-%d", i)
			annotation, news, err := rtruntime.Ask(r, id, 1, start.Add(time.Duration(i)*time.Second))
			if err != nil || !news {
				t.Fatalf("report %d: news %t, %v", i, news, err)
			}
			r.Annotations = map[string]string{v1alpha1.AnnotationAsked: annotation}
			if _, known := rtruntime.AskedOn(r)[id]; !known {
				t.Fatalf("report %d is not in the annotation", i)
			}
		}
		if n, bytes := len(rtruntime.AskedOn(r)), len(r.Annotations[v1alpha1.AnnotationAsked]); n != min(reports, 256) || bytes > 64<<10 {
			t.Fatalf("%d reports: %d entries, %d bytes", reports, n, bytes)
		}
		r.Spec.Servers = r.Spec.Servers[:1]
		annotation, _, err := rtruntime.Ask(r, "00000000-0000-4000-8000-000000000000/container-0", 2, start)
		if err != nil {
			t.Fatal(err)
		}
		r.Annotations[v1alpha1.AnnotationAsked] = annotation
		if got := len(rtruntime.AskedOn(r)); got != 1 {
			t.Fatalf("%d entries of servers that have left", got)
		}
	}
}
