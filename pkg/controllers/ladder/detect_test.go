package ladder_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// lookout watches a node of a cluster second by second.
type lookout struct {
	*cluster
	watch ladder.Watch
	now   time.Time
	o     ladder.Options
}

func (l *lookout) look(pressed bool) []string {
	n, _ := l.snapshot().NodeView("a")
	var list []ladder.AffectedContainer
	l.watch, list = l.watch.Look(n, pressed, l.o, l.now)
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%s %s", s.Pod, s.Source))
	}
	return out
}

// after lets seconds pass. Before each look f changes the cluster.
func (l *lookout) after(seconds int, f func()) []string {
	var out []string
	for range seconds {
		l.now = l.now.Add(time.Second)
		f()
		out = l.look(false)
	}
	return out
}

func newLookout() *lookout {
	w := newCluster()
	w.node("a", 2)
	w.run("high", "a", "High", 20, 40, 0)
	w.run("middle", "a", "Middle", 20, 30, 1)
	w.run("low", "a", "Low", 20, 30, 1)
	l := &lookout{cluster: w, now: start, o: ladder.Defaults()}
	l.look(false)
	return l
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestOverrunsOfTheHighestBudget(t *testing.T) {
	t.Parallel()
	l := newLookout()
	nothing := func() {}
	overrun := func(pod string, n int64) func() { return func() { l.applied("a", pod).Overruns += n } }
	expect(t, "four overruns", l.after(1, overrun("high", 4)))
	expect(t, "five within the window", l.after(1, overrun("high", 1)), "high OverrunsAtHighBudget")
	expect(t, "nine quiet seconds", l.after(9, nothing), "high OverrunsAtHighBudget")
	expect(t, "ten", l.after(1, nothing))
	expect(t, "a stray one each twelve seconds", l.after(60, func() {
		if l.now.Unix()%12 == 0 {
			overrun("high", 1)()
		}
	}))
	expect(t, "Low ones", l.after(10, overrun("low", 50)))
	l.applied("a", "middle").BudgetUs = 20_000
	l.after(1, nothing)
	expect(t, "below the highest budget", l.after(10, overrun("middle", 50)))
	l.applied("a", "middle").BudgetUs = 30_000
	expect(t, "what led to the raise", l.after(1, overrun("middle", 50)))
	expect(t, "what comes after", l.after(1, overrun("middle", 50)), "middle OverrunsAtHighBudget")
	expect(t, "the more critical first", l.after(1, overrun("high", 50)), "high OverrunsAtHighBudget", "middle OverrunsAtHighBudget")
	l.applied("a", "high").Overruns = 0
	expect(t, "counters that begin anew count nothing", l.after(10, nothing))
}

func TestMissesWithinTheirPeriod(t *testing.T) {
	t.Parallel()
	l := newLookout()
	miss := func() { l.applied("a", "low").Misses++ }
	expect(t, "misses that no McKube limits", l.after(100, miss))
	for _, zero := range [][2]int32{{0, 0}, {0, 60}, {4, 0}} {
		l.mckubes["low"].Spec.PressuredDeadlinesTotal, l.mckubes["low"].Spec.PressuredDeadlinesPeriod = &zero[0], &zero[1]
		expect(t, fmt.Sprintf("misses that a McKube with zeros limits, %v", zero), l.after(100, miss))
	}
	l.mckubes["low"].Spec.PressuredDeadlinesTotal, l.mckubes["low"].Spec.PressuredDeadlinesPeriod = ptr.To(int32(4)), ptr.To(int32(60))
	each := func(seconds int64) func() {
		return func() {
			if l.now.Unix()%seconds == 0 {
				miss()
			}
		}
	}
	expect(t, "three a minute", l.after(300, each(20)))
	expect(t, "four a minute", l.after(125, each(15)), "low DeadlineMisses")
	expect(t, "quiet for less than a quarter of the minute", l.after(14, func() {}), "low DeadlineMisses")
	expect(t, "for longer", l.after(2, func() {}))
}

// The looks of a busy loop are far apart. The events of one look may be older than an action made in between, and do not ask for
// another action. The events of the next looks do, once they count as pressure. A stray event that an agent reported late must
// not move a pod.
func TestALateLookDoesNotMakeEventsLater(t *testing.T) {
	t.Parallel()
	l := newLookout()
	l.after(3, func() { l.applied("a", "high").Overruns += 9 })
	l.mckubes["low"].Spec.PressuredDeadlinesTotal, l.mckubes["low"].Spec.PressuredDeadlinesPeriod = ptr.To(int32(4)), ptr.To(int32(60))
	done := in("Succeeded", 0)
	done.Status.PhaseTime = ptr.To(metav1.NewMicroTime(l.now.Add(time.Second)))
	for _, look := range []struct {
		after  time.Duration
		events int64
		want   string
	}{{20 * time.Second, 9, "wait 2s"}, {2 * time.Second, 3, "wait 2s"}, {2 * time.Second, 2, "climb"}} {
		l.now = l.now.Add(look.after)
		l.applied("a", "high").Overruns += look.events
		l.applied("a", "low").Misses += look.events
		n, _ := l.snapshot().NodeView("a")
		scene := ladder.Scene{
			Episode: ladder.Episode{Node: "n", Begun: start, Active: true, Stage: ladder.SourceOverruns},
			Sees:    true, Tainted: true, Options: l.o, Now: l.now, Answers: []*v1alpha1.RTAction{done},
		}
		l.watch, scene.Affected = l.watch.Look(n, false, l.o, l.now)
		if got := words(scene.Next()); got != look.want || len(scene.Affected) != 2 {
			t.Errorf("%d suffer, %s; want 2, %s", len(scene.Affected), got, look.want)
		}
	}
}

func TestHighContainersWithoutACore(t *testing.T) {
	t.Parallel()
	l := newLookout()
	l.run("homeless", "a", "High", 20, 40, -1)
	l.run("humble", "a", "Middle", 20, 40, -1)
	expect(t, "four seconds", l.after(5, func() {}))
	expect(t, "five", l.after(1, func() {}), "homeless NoCoreForHigh")
	delete(l.pods, "homeless")
	refused := l.applied("a", "high")
	refused.BudgetUs, refused.Error = 0, `pod default/high has no container "app" on this node`
	expect(t, "a container that is not there", l.after(10, func() {}))
	refused.Error = "core 0: a budget of 40000 us needs 401000 ppm, 900000 of 900000 ppm are promised"
	expect(t, "one that its agent refuses", l.after(10, func() {}), "high NoCoreForHigh")
}

func TestBusyWithoutRoom(t *testing.T) {
	t.Parallel()
	l := newLookout()
	l.applied("a", "high").BudgetUs = 20_000
	expect(t, "a low budget", l.after(10, func() {}))
	l.rtNodes["a"].Status.Pressure.BusySince = ptr.To(metav1.NewTime(start))
	expect(t, "busy, and nobody asks for the raise", l.after(10, func() {}), "high BusyWithoutRoom")
	for i := range l.rtNodes["a"].Spec.Servers {
		l.rtNodes["a"].Spec.Servers[i].Level = v1alpha1.LevelHigh
	}
	expect(t, "a raise that is asked for", l.after(1, func() {}))
}

// A process that finds a node under pressure takes one event for enough. It says that no container is affected only after it has
// watched for as long as events count.
func TestANewProcessIsNotSure(t *testing.T) {
	t.Parallel()
	l := newLookout()
	l.now = l.now.Add(time.Second)
	l.applied("a", "high").Overruns++
	expect(t, "one overrun of a pressed node", l.look(true), "high OverrunsAtHighBudget")
	if l.watch.Sure(l.o, l.now.Add(9*time.Second)) || !l.watch.Sure(l.o, l.now.Add(10*time.Second)) {
		t.Error("it is sure after the window")
	}
	l.rtNodes["a"].UID = "another"
	l.look(false)
	if l.watch.Sure(l.o, l.now.Add(9*time.Second)) {
		t.Error("it is sure of a node that it has just met")
	}
}
