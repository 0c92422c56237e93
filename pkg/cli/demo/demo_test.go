package demo_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/demo"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// cluster is pods that run on ready nodes, one node of $0.1/h for each claim of a pool.
func cluster(pods int, pool string, claims ...string) demo.View {
	v := demo.View{State: observe.State{At: begun, Running: pods, PeakDisrupted: map[string]int{}}}
	for _, c := range claims {
		v.Nodes = append(v.Nodes, observe.Node{Name: c, Claim: c, Pool: pool, Phase: observe.Ready, Price: 0.1, Labels: map[string]string{}})
	}
	for range pods {
		v.Pods = append(v.Pods, observe.Pod{Node: claims[0], Running: true})
	}
	return v
}

func gone(pool, why string, claims ...string) []observe.Machine {
	var all []observe.Machine
	for _, c := range claims {
		all = append(all, observe.Machine{Claim: c, Pool: pool, Why: why, Created: begun, Gone: begun.Add(20 * time.Second)})
	}
	return all
}

func memory(want int, claims ...string) demo.Memory {
	m := demo.Memory{Begun: begun, Want: want, Nodes: len(claims), Price: 0.1 * float64(len(claims)), Claims: map[string]bool{}}
	for _, c := range claims {
		m.Claims[c] = true
	}
	return m
}

func chapter(t *testing.T, short string) demo.Chapter {
	t.Helper()
	for _, c := range demo.Story() {
		if c.Short == short {
			return c
		}
	}
	t.Fatalf("there is no chapter %q", short)
	return demo.Chapter{}
}

func expect(t *testing.T, name string, c demo.Chapter, v demo.View, m demo.Memory, want bool, words string) {
	t.Helper()
	reached, found := c.Goal(v, m)
	if reached != want || !strings.Contains(found, words) {
		t.Errorf("%s: reached %v, found %q; want %v with %q", name, reached, found, want, words)
	}
}

func TestScaleUpNeedsEveryPodOnAReadyNode(t *testing.T) {
	t.Parallel()
	c := chapter(t, "scale-up")
	expect(t, "all run", c, cluster(5, "general", "a", "b"), memory(5), true, "all 5 pods run on 2 new nodes")
	pending := cluster(5, "general", "a")
	pending.Pending = 1
	expect(t, "one is pending", c, pending, memory(5), false, "5 of 5 pods run")
	starting := cluster(5, "general", "a", "b")
	starting.Nodes[1].Phase = observe.Starting
	expect(t, "a node is not ready", c, starting, memory(5), false, "2 nodes of which 1 are ready")
	expect(t, "too few", c, cluster(4, "general", "a"), memory(5), false, "4 of 5")
}

func TestConsolidationNeedsSavingAndAMove(t *testing.T) {
	t.Parallel()
	c := chapter(t, "consolidation")
	before := memory(5, "a", "b", "c", "d")
	v := cluster(5, "general", "a")
	v.Machines = append(gone("general", "Empty", "b"), gone("general", "Underutilized", "c", "d")...)
	expect(t, "saved", c, v, before, true, "1 closed as empty, 2 by moving their pods")
	v.Machines = gone("general", "Empty", "b", "c", "d")
	expect(t, "only empty ones", c, v, before, false, "3 closed as empty, 0 by moving")
	dear := cluster(5, "general", "a", "b", "c")
	dear.Machines = gone("general", "Underutilized", "d")
	expect(t, "still dear", c, dear, before, false, "at $0.30/h")
}

func TestDriftKeepsTheBudget(t *testing.T) {
	t.Parallel()
	c := chapter(t, "drift")
	before := memory(3, "a", "b", "c")
	before.Budget, before.BudgetPool = 1, "careful"
	v := cluster(3, "careful", "d", "e", "f")
	for _, n := range v.Nodes {
		n.Labels["demo.mckube.io/release"] = "v2"
	}
	v.Machines = gone("careful", "Drifted", "a", "b", "c")
	v.PeakDisrupted["careful"] = 1
	expect(t, "rolled", c, v, before, true, "3 of 3 nodes carry release v2; at most 1 disrupted at once, budget 1")
	v.PeakDisrupted["careful"] = 2
	expect(t, "two at once", c, v, before, false, "the budget was exceeded")
	v.PeakDisrupted["careful"] = 1
	v.Nodes[2].Labels["demo.mckube.io/release"] = "v1"
	expect(t, "one is old", c, v, before, false, "2 of 3")
}

func TestMachinesLeaveForTheRightReason(t *testing.T) {
	t.Parallel()
	for short, c := range map[string]struct{ pool, why string }{
		"spot": {"general", "Interrupted"}, "repair": {"careful", "Unhealthy"}, "expiry": {"short-lived", "Expired"},
	} {
		v := cluster(3, c.pool, "b")
		expect(t, short+" before", chapter(t, short), v, memory(3, "a"), false, "")
		v.Machines = gone(c.pool, c.why, "a")
		expect(t, short, chapter(t, short), v, memory(3, "a"), true, "all 3 pods run")
		v.Machines = gone(c.pool, "Deleted", "a")
		expect(t, short+" for another reason", chapter(t, short), v, memory(3, "a"), false, "")
		v.Machines = gone(c.pool, c.why, "a")
		v.Pending = 1
		expect(t, short+" with a pod pending", chapter(t, short), v, memory(3, "a"), false, "")
	}
}

func TestStoryFitsItsTime(t *testing.T) {
	t.Parallel()
	if demo.Limit > 6*time.Minute-20*time.Second {
		t.Errorf("limit %v leaves no time to start the cluster", demo.Limit)
	}
	for _, c := range demo.Story() {
		if c.Limit <= 0 || c.Limit > demo.Limit || c.Doing == "" || c.Short == "" {
			t.Errorf("chapter %q: limit %v", c.Title, c.Limit)
		}
	}
}

func TestStoryOfABusyMachineHasMoreTime(t *testing.T) {
	t.Parallel()
	story := demo.Story()
	for i, c := range demo.StoryWithin(3 * demo.Limit) {
		if c.Limit != 3*story[i].Limit {
			t.Errorf("chapter %q: limit %v, want three times %v", c.Title, c.Limit, story[i].Limit)
		}
	}
}

func record() demo.Record {
	r := demo.Record{Made: begun.Add(time.Minute), Machines: gone("general", "Empty", "general-a")}
	for i, c := range demo.Story() {
		r.Results = append(r.Results, demo.Result{
			Chapter: c, Status: view.Done, Begun: begun.Add(time.Duration(i) * time.Second), Took: time.Second, Found: "found <it>",
			Peak: map[string]int{"careful": 1}, Budget: i % 2, BudgetPool: "careful",
		})
		r.Marks = append(r.Marks, observe.Mark{At: begun.Add(time.Duration(10*i) * time.Second), Label: "x"})
	}
	for i := range 60 {
		r.Series = append(r.Series, observe.Sample{At: begun.Add(time.Duration(i) * time.Second), Nodes: map[string]int{"general": i % 7}, Price: 1, Watts: 60})
	}
	r.Decisions = []observe.Decision{{At: begun, Kind: observe.Opened, Node: "general-a", Pool: "general", Text: "opened & joined", Count: 1}}
	return r
}

func TestPageTellsEverything(t *testing.T) {
	t.Parallel()
	page, err := record().Page(report.Cells("mainspring", "v0"))
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := report.Write(&html, page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"10 of 10 chapters reached their goal", "found &lt;it&gt;", "opened &amp; joined", "1: kept", "Nodes by pool", "Pods pending", "5 a dying node repaired", "general-a",
	} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("%q is missing in the page", want)
		}
	}
	if strings.Contains(html.String(), "http") {
		t.Errorf("the page refers to something outside")
	}
}

func TestPageTellsAFailure(t *testing.T) {
	t.Parallel()
	r := record()
	r.Results[2].Status = view.Failed
	page, err := r.Page()
	if err != nil {
		t.Fatal(err)
	}
	if page.Verdict.Good || page.Verdict.Words != "9 of 10 chapters reached their goal" {
		t.Errorf("got %+v", page.Verdict)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	record().Summary(&out)
	for _, want := range []string{"CHAPTER", "3 drift roll-out under a budget", "10 of 10 chapters reached their goal in 59 s; 1 machines were opened; spent $0.0164"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
