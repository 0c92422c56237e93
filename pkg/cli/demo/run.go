package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

// Limit is how long all chapters together may take, so that the demo ends within six minutes of the build.
const Limit = 335 * time.Second

// Figures are the cluster's at one moment.
type Figures struct {
	Nodes   int
	Running int
	Price   float64 // $/h
	Watts   float64
}

func figuresOf(s observe.State) Figures {
	return Figures{Nodes: len(s.Nodes), Running: s.Running, Price: s.Price(), Watts: s.Watts()}
}

// Result is what became of a chapter.
type Result struct {
	Chapter    Chapter
	Status     view.Status
	Begun      time.Time
	Took       time.Duration
	Found      string
	Before     Figures
	After      Figures
	Peak       map[string]int // most nodes disrupted at once, by pool
	Budget     int            // of BudgetPool; 0 = the chapter is not about one
	BudgetPool string
	Cores      []observe.Node // those with real-time work, at the end of the chapter
}

// Teller tells a story on a cluster.
type Teller struct {
	Client   client.Client
	Recorder *observe.Recorder
	Clock    clock.WithTicker
	Limit    time.Duration
	// Pause is how long a chapter's words are shown before it begins, for people who read them.
	Pause time.Duration

	mu      sync.Mutex
	begun   time.Time
	results []Result
	notice  string
}

// NewTeller makes a teller of these chapters.
func NewTeller(c client.Client, r *observe.Recorder, clk clock.WithTicker, story []Chapter, limit time.Duration) *Teller {
	t := &Teller{Client: c, Recorder: r, Clock: clk, Limit: limit, begun: clk.Now()}
	for _, chapter := range story {
		t.results = append(t.results, Result{Chapter: chapter, Status: view.Waiting})
	}
	return t
}

// Tell tells all chapters. It fails when the context ends or the cluster refuses a change; a goal that is not reached is
// a failed chapter and no error.
func (t *Teller) Tell(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	for i := range t.results {
		t.announce(bounded, i)
		if err := t.tell(bounded, i); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// announce shows a chapter's words for a while.
func (t *Teller) announce(ctx context.Context, number int) {
	if t.Pause == 0 {
		return
	}
	t.change(number, func(r *Result) { r.Status, r.Begun = view.Running, t.Clock.Now() })
	timer := t.Clock.NewTimer(t.Pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// tell tells one chapter. When no time is left at all, the chapter has failed too.
func (t *Teller) tell(ctx context.Context, number int) error {
	chapter := t.results[number].Chapter
	before := t.Recorder.State()
	t.Recorder.ResetPeaks()
	t.Recorder.Mark(fmt.Sprint(number + 1))
	memory := Memory{Begun: t.Clock.Now()}
	t.change(number, func(r *Result) {
		r.Status, r.Begun, r.Before = view.Running, memory.Begun, figuresOf(before)
	})
	ctx, cancel := context.WithTimeout(ctx, chapter.Limit)
	defer cancel()
	if err := chapter.Act(ctx, t.Client, before, &memory); err != nil && ctx.Err() == nil {
		return fmt.Errorf("chapter %q: %w", chapter.Title, err)
	}
	found := "there was no time left"
	err := t.Recorder.Until(ctx, func(s observe.State) bool {
		var reached bool
		reached, found = chapter.Goal(View{State: s, Machines: t.Recorder.Machines()}, memory)
		return reached
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	after := t.Recorder.State()
	t.change(number, func(r *Result) {
		r.Status, r.Found, r.Took = view.Done, found, t.Clock.Since(r.Begun)
		r.After, r.Peak, r.Budget, r.BudgetPool = figuresOf(after), after.PeakDisrupted, memory.Budget, memory.BudgetPool
		r.Cores = withRealtimeWork(after)
		if err != nil {
			r.Status = view.Failed
		}
	})
	return nil
}

func (t *Teller) change(number int, how func(*Result)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how(&t.results[number])
}

func withRealtimeWork(s observe.State) []observe.Node {
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(n observe.Node) bool {
		return !slices.ContainsFunc(n.Cores, func(c observe.Core) bool { return len(c.Servers) > 0 })
	})
}

// Results are the chapters so far.
func (t *Teller) Results() []Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Result(nil), t.results...)
}

// Failed counts the chapters whose goal was not reached.
func (t *Teller) Failed() int {
	failed := 0
	for _, r := range t.Results() {
		if r.Status != view.Done {
			failed++
		}
	}
	return failed
}

// Notice sets the line that matters now.
func (t *Teller) Notice(words string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notice = words
}

// decisionsShown is how many decisions a frame carries.
const decisionsShown = 40

// Frame is what the view shows now.
func (t *Teller) Frame() view.Frame {
	series := t.Recorder.Series()
	f := view.Frame{
		Title: "demo", Elapsed: t.Clock.Since(t.begun), Limit: t.Limit, State: t.Recorder.State(),
		Dollars: series.Dollars(), KWh: series.KWh(), Decisions: t.Recorder.Decisions(decisionsShown),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.Notice = t.notice
	for _, r := range t.results {
		step := view.Step{Title: r.Chapter.Title, Doing: r.Chapter.Doing, Outcome: r.Found, Status: r.Status, Took: r.Took}
		if r.Status == view.Running {
			step.Took = t.Clock.Since(r.Begun)
		}
		f.Steps = append(f.Steps, step)
	}
	return f
}

// ErrChaptersFailed means that the story was told, but not every goal was reached.
var ErrChaptersFailed = errors.New("not every chapter reached its goal")

// Perform makes the pools, waits until they are ready, and tells the story.
func (t *Teller) Perform(ctx context.Context) error {
	pools, err := manifest("pools.yaml")
	if err != nil {
		return err
	}
	if err := kube.Apply(ctx, t.Client, pools...); err != nil {
		return err
	}
	if err := kube.AwaitPools(ctx, t.Client, t.Clock, pools...); err != nil {
		return err
	}
	return t.Tell(ctx)
}
