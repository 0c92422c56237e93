package hollow_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

func (n *node) overruns(when, pod string, want int64) {
	n.Helper()
	if s := n.server(pod); s.Overruns != want {
		n.Errorf("%s: %s overran %d times, want %d", when, pod, s.Overruns, want)
	}
}

func (n *node) misses(when, pod string, want int64) {
	n.Helper()
	if s := n.server(pod); s.Misses != want {
		n.Errorf("%s: %s missed %d deadlines, want %d", when, pod, s.Misses, want)
	}
}

func TestOverrunsThatOnlyAnotherCoreEnds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun-until-moved; 1500ms miss 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.pass(2 * time.Second)
	n.overruns("one in each period of a second, and the first", "a", 101)
	n.has("for as long as it overruns", "a", 4_000, "hi", 1)
	a.Cores = []int32{2}
	n.spec([]v1alpha1.RTServer{a}, plan(2, 900_000, a))
	n.pass(2 * time.Second)
	n.overruns("moved", "a", 101)
	n.misses("the next step follows", "a", 1)
	n.pass(2 * time.Second)
	n.has("and it recovers", "a", 2_000, "low", 2)
}

func TestOverrunsAndMissesOfACrowdedCore(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun-while-crowded 60")
	n.runs("b", "1s miss-while-crowded 60")
	n.runs("c", "")
	a, b, c := srv("a", "Low", 1, 2_000, 2_000), srv("b", "Low", 1, 2_000, 2_000), srv("c", "Low", 1, 2_500, 2_500)
	n.spec([]v1alpha1.RTServer{a, b, c}) // 210,000 and 210,000 and 260,000 ppm
	n.pass(2 * time.Second)
	n.overruns("crowded", "a", 101)
	n.misses("crowded", "b", 101)
	c.Cores = []int32{2}
	n.spec([]v1alpha1.RTServer{a, b, c})
	n.pass(20 * time.Millisecond) // what c had is promised until its deadline
	overruns, misses := n.server("a").Overruns, n.server("b").Misses
	n.pass(2 * time.Second)
	n.overruns("with room", "a", overruns)
	n.misses("with room", "b", misses)
	c.Cores = []int32{1}
	n.spec([]v1alpha1.RTServer{a, b, c})
	n.pass(time.Second)
	n.overruns("crowded again", "a", overruns+100)
	n.misses("crowded again", "b", misses+100)
}

// What nobody saw happen does not happen afterwards, and what has no end goes on.
func TestAnEndlessStepGoesOnAfterASilence(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	steps, err := hollow.ParseNodeScript("2s silent 5s")
	if err != nil {
		t.Fatal(err)
	}
	n.SetScript(steps, begin)
	n.runs("a", "1s overrun-until-moved")
	n.spec([]v1alpha1.RTServer{srv("a", "Low", 1, 2_000, 2_000)})
	n.pass(5 * time.Second)
	n.overruns("silent since 2 s", "a", 100)
	n.pass(3 * time.Second)
	n.overruns("it sees since 7 s", "a", 200)
}

func TestAnEndlessStepGoesOnWithTheNextAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun-until-moved")
	n.spec([]v1alpha1.RTServer{srv("a", "Low", 1, 2_000, 2_000)})
	reported := n.pass(2 * time.Second)
	heartbeat := metav1.NewMicroTime(n.now)
	reported.HeartbeatTime = &heartbeat
	next := newNode(t)
	next.view, next.now = n.view, n.now.Add(time.Second)
	next.Resume(reported)
	next.pass(0)
	next.overruns("as reported", "a", 101)
	next.pass(time.Second)
	next.overruns("in each period since the report", "a", 301)
}

func TestANodeIsLate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	steps, err := hollow.ParseNodeScript("1s late 3s; 10s late")
	if err != nil {
		t.Fatal(err)
	}
	n.SetScript(steps, begin)
	n.runs("a", "")
	n.runs("b", "")
	n.spec([]v1alpha1.RTServer{srv("a", "High", 1, 2_000, 4_000), srv("b", "Low", 2, 2_000, 4_000)})
	for _, want := range []struct {
		at     time.Duration
		misses int64
	}{{1500, 0}, {2000, 1}, {4000, 3}, {9000, 3}, {11000, 4}, {71000, 64}} {
		n.pass(begin.Add(want.at * time.Millisecond).Sub(n.now))
		n.misses(n.now.Sub(begin).String(), "a", want.misses)
		n.misses(n.now.Sub(begin).String(), "b", want.misses)
	}
}

func TestANodeIsAsBusyAsItsContainersKeepIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	steps, err := hollow.ParseNodeScript("1s pressure-each 45; 60s pressure 10")
	if err != nil {
		t.Fatal(err)
	}
	n.SetScript(steps, begin)
	a, b, c := srv("a", "Low", 1, 2_000, 2_000), srv("b", "Low", 1, 2_000, 2_000), srv("c", "Low", 2, 2_000, 2_000)
	for _, pod := range []string{"a", "b", "c"} {
		n.runs(pod, "")
	}
	busy := func(when string, percent int32, is bool) {
		t.Helper()
		if p := n.Status().Pressure; p.CPUPercent != percent || (p.BusySince != nil) != is {
			t.Errorf("%s: %+v, want %d %% and busy %v", when, p, percent, is)
		}
	}
	n.spec([]v1alpha1.RTServer{a, b, c})
	busy("before", 0, false)
	n.pass(time.Second)
	busy("three", 100, true)
	n.spec([]v1alpha1.RTServer{a, c})
	busy("two", 90, true)
	n.spec([]v1alpha1.RTServer{a})
	busy("one", 45, false)
	n.pass(time.Minute)
	busy("a script says how busy it is", 10, false)
}

func TestWhatIsBeyondTheBudgetIsLateUnlessItIsRaised(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s need 40; 2s need 50; 3s need 0; 9s miss 1")
	n.runs("b", "1s need 30")
	a, b := srv("a", "High", 1, 2_000, 4_000), srv("b", "Low", 2, 3_000, 4_000)
	a.DwellUs = 5_000_000
	n.spec([]v1alpha1.RTServer{a, b}, plan(1, 900_000, a))
	n.pass(1500 * time.Millisecond)
	n.has("raised before the budget ends", "a", 4_000, "hi", 1)
	n.overruns("raised", "a", 1)
	n.misses("in time", "a", 0)
	n.pass(time.Second)
	n.misses("more than the highest budget", "a", 51)
	n.pass(5 * time.Second)
	n.overruns("satisfied from 3 s", "a", 101)
	n.misses("satisfied from 3 s", "a", 100)
	n.overruns("what the budget holds", "b", 0)
	n.pass(2 * time.Second)
	n.misses("the next step", "a", 101)
}

func TestWithoutABudgetEveryJobIsLate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "")
	n.runs("b", "1s need 10")
	a, b := srv("a", "High", 1, 8_000, 8_000), srv("b", "Low", 1, 2_000, 2_000)
	n.spec([]v1alpha1.RTServer{a, b})
	n.pass(2 * time.Second)
	n.misses("refused", "b", 101)
	delete(n.view.Containers, hollow.Key{Pod: "b", Container: "app"})
	n.pass(0)
	n.spec([]v1alpha1.RTServer{a, b})
	n.pass(2 * time.Second)
	n.misses("gone", "b", 101)
}
