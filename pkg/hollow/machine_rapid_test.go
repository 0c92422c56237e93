package hollow_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// drawServer is any server a controller might ask for, also one without room.
func drawServer(t *rapid.T, pod string) v1alpha1.RTServer {
	period := rapid.SampledFrom([]int64{5_000, 10_000, 17_000, 40_000}).Draw(t, "period")
	low := rapid.Int64Range(1, period/2).Draw(t, "low")
	s := srv(pod, rapid.SampledFrom([]string{"Low", "Middle", "High"}).Draw(t, "criticality"), int32(rapid.IntRange(1, 2).Draw(t, "core")), low, low)
	s.PeriodUs, s.BudgetHighUs = period, rapid.Int64Range(low, period*9/10).Draw(t, "high")
	s.DeadlineUs = rapid.SampledFrom([]int64{period, max(s.BudgetHighUs, period*3/4)}).Draw(t, "deadline")
	s.Limited = rapid.Bool().Draw(t, "limited")
	s.Level = rapid.SampledFrom([]string{"low", "low", "hi"}).Draw(t, "level")
	s.Mode = rapid.SampledFrom([]string{"Elastic", "Elastic", "Reserved"}).Draw(t, "mode")
	s.DwellUs = rapid.SampledFrom([]int64{0, 50_000, 300_000}).Draw(t, "dwell")
	return s
}

// drawView is a spec with scripts, and plans that promise whatever they like.
func drawView(t *rapid.T, at time.Time, containers map[hollow.Key]hollow.Container) hollow.View {
	node := &v1alpha1.RTNode{}
	for i := range rapid.IntRange(0, 6).Draw(t, "servers") {
		s := drawServer(t, fmt.Sprint("pod-", i))
		node.Spec.Servers = append(node.Spec.Servers, s)
		key := hollow.Key{Pod: s.PodUID, Container: s.Container}
		if _, ok := containers[key]; !ok {
			containers[key] = hollow.Container{Started: at, Base: at, Script: drawScript(t)}
		}
	}
	for core := range int32(2) {
		p := plan(core+1, rapid.Int64Range(0, 2_000_000).Draw(t, "threshold"), node.Spec.Servers...)
		p.MaxRaised = int32(rapid.IntRange(0, 2).Draw(t, "maxRaised"))
		node.Spec.Plan = append(node.Spec.Plan, p)
	}
	return hollow.View{RTNode: node, Containers: containers}
}

func drawScript(t *rapid.T) []hollow.Step {
	var steps []hollow.Step
	after := time.Duration(0)
	for range rapid.IntRange(0, 4).Draw(t, "steps") {
		after += time.Duration(rapid.IntRange(0, 400).Draw(t, "after")) * time.Millisecond
		verb := rapid.SampledFrom([]hollow.Verb{hollow.Overrun, hollow.Overrun, hollow.Need, hollow.OverrunUntilMoved}).Draw(t, "verb")
		number := rapid.Int64Range(1, 5).Draw(t, "overruns")
		if verb == hollow.Need {
			number *= 15
		}
		steps = append(steps, hollow.Step{After: after, Verb: verb, Number: number})
	}
	if rapid.Bool().Draw(t, "crowded") {
		verb := rapid.SampledFrom([]hollow.Verb{hollow.OverrunWhileCrowded, hollow.MissWhileCrowded}).Draw(t, "last")
		steps = append(steps, hollow.Step{After: after, Verb: verb, Number: rapid.Int64Range(0, 90).Draw(t, "percent")})
	}
	return steps
}

func machine() *hollow.Machine {
	return hollow.NewMachine([]rt.Core{
		{ID: 1, Sibling: rt.NoSibling, Capacity: 900_000, Granularity: 100},
		{ID: 2, Sibling: rt.NoSibling, Capacity: 600_000, EscalationReserve: 300_000, Granularity: 100},
	}, begin)
}

// Whatever the specs, plans and overruns: what the agent promises on a core never exceeds the core, and
// the machine's way does not depend on how often it is looked at.
func TestNoCoreIsEverPromisedTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		often, seldom := machine(), machine()
		now, containers := begin, map[hollow.Key]hollow.Container{}
		for range rapid.IntRange(1, 6).Draw(t, "specs") {
			view := drawView(t, now, containers)
			often.Observe(view, now)
			seldom.Observe(view, now)
			for range rapid.IntRange(1, 30).Draw(t, "looks") {
				now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "us")) * time.Microsecond)
				often.Advance(now)
				for _, c := range often.Status().Cores {
					if c.ReservedPpm > c.CapacityPpm+c.EscalationReservePpm {
						t.Fatalf("core %d promises %d of %d + %d ppm at %s", c.ID, c.ReservedPpm, c.CapacityPpm, c.EscalationReservePpm, now.Sub(begin))
					}
				}
			}
			seldom.Advance(now)
			if one, other := fmt.Sprint(often.Status().Servers, often.Status().Cores), fmt.Sprint(seldom.Status().Servers, seldom.Status().Cores); one != other {
				t.Fatalf("looked at often: %s\nseldom: %s", one, other)
			}
		}
	})
}

// One raise at a time where the plan says so, whoever overruns.
func TestNoMoreAreRaisedThanThePlanAllows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, view := machine(), hollow.View{RTNode: &v1alpha1.RTNode{}, Containers: map[hollow.Key]hollow.Container{}}
		for i := range 5 {
			s := srv(fmt.Sprint("pod-", i), "High", 2, 500, rapid.Int64Range(600, 3_000).Draw(t, "high"))
			s.PeriodUs = rapid.SampledFrom([]int64{5_000, 7_000, 10_000, 30_000}).Draw(t, "period")
			s.DeadlineUs, s.Limited = s.PeriodUs, true
			view.RTNode.Spec.Servers = append(view.RTNode.Spec.Servers, s)
			view.Containers[hollow.Key{Pod: types.UID(s.Pod), Container: "app"}] = hollow.Container{Started: begin, Base: begin, Script: drawScript(t)}
		}
		p := plan(2, 900_000, view.RTNode.Spec.Servers...)
		p.MaxRaised = 1
		view.RTNode.Spec.Plan = []v1alpha1.RTCorePlan{p}
		m.Observe(view, begin)
		for now := begin; now.Before(begin.Add(5 * time.Second)); now = now.Add(3 * time.Millisecond) {
			m.Advance(now)
			raised := 0
			for _, s := range m.Status().Servers {
				if s.Level != v1alpha1.LevelLow {
					raised++
				}
			}
			if raised > 1 {
				t.Fatalf("%d are raised at %s", raised, now.Sub(begin))
			}
		}
	})
}
