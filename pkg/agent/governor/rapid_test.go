package governor_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// interval is a period that was released and its deadline, with the largest budget in force meanwhile.
type interval struct {
	release, deadline int64
	budget            int64
	spec              table.Server
}

// task is a server of the model: its periods, one after the other or with pauses.
type task struct {
	spec    governor.Server
	budget  int64 // in force
	owed    int64 // the low budget of the last table that it was granted
	current int   // index of its last interval; -1: none
	gone    bool
}

// world is a straightforward model of one core: it knows every period that ever was and what was in force in it.
type world struct {
	*rapid.T
	core      *governor.Core
	options   governor.Options
	now       int64
	tasks     map[int]*task // by slot
	all       []*task
	intervals []interval
	loaded    []governor.Server
	plan      table.Plan
	limit     rt.PPM
	threshold int64 // of all tables; 0: each has its own
	happened  map[string]int
	resting   bool // no write is refused any more
	stayed    bool // a server that was to leave: others may have been granted what it should have had back
}

func (w *world) Set(slot int, budgetUs int64) error {
	t := w.tasks[slot]
	if t == nil || budgetUs < min(w.floor(t), t.budget, t.owed) || budgetUs > max(t.spec.HighUs, t.spec.LeastUs) || budgetUs == t.budget ||
		t.spec.Leaving && budgetUs > t.budget {
		w.Fatalf("%d us are set for slot %d, %+v", budgetUs, slot, t)
	}
	if !w.resting && rapid.IntRange(0, 9).Draw(w.T, "refused") == 0 {
		w.happened["write refused"]++
		return errBusy
	}
	t.budget = budgetUs
	t.owe()
	if i := t.current; i >= 0 && w.now < w.intervals[i].deadline && budgetUs > w.intervals[i].budget {
		before := w.most(w.intervals[i].release)
		w.intervals[i].budget = budgetUs
		if after := w.most(w.intervals[i].release); after > before && after > max(w.limit, w.core.Most(w.intervals[i].release)) {
			w.Fatalf("slot %d is raised to %d us: %d of %d ppm are promised since its release", slot, budgetUs, after, w.limit)
		}
	}
	return nil
}

// owe takes down that what the table asks for is in force. As long as it is refused that, a raise is given back to what was before.
func (t *task) owe() {
	if t.budget >= t.spec.LowUs {
		t.owed = t.spec.LowUs
	}
}

// floor is the least budget that a server may be cut to. Who was cut further, by the plan before, gets back what there
// is room for.
func (w *world) floor(t *task) int64 {
	for _, q := range w.plan.Squeeze {
		if q.ID == t.spec.ID && t.spec.LeastUs <= t.spec.LowUs {
			return q.FloorUs
		}
	}
	return t.spec.LowUs
}

// most is the most that is promised at an instant since a release.
func (w *world) most(since int64) rt.PPM {
	most := w.promised(w.now)
	for _, i := range w.intervals {
		if i.release >= since {
			most = max(most, w.promised(i.release))
		}
	}
	return max(most, w.promised(since))
}

// release begins a period of a server that has none under way.
func (w *world) release(t *task) {
	if t.gone || t.budget == 0 {
		return
	}
	if i := t.current; i >= 0 && w.now < w.intervals[i].release+t.spec.PeriodUs*1000 {
		return
	}
	window := min(t.spec.DeadlineUs, t.spec.PeriodUs) * 1000
	t.current = len(w.intervals)
	w.intervals = append(w.intervals, interval{release: w.now, deadline: w.now + window, budget: t.budget, spec: t.spec.Server})
	if got := w.promised(w.now); got > w.core.Promised() || w.threshold > 0 && got > rt.PPM(w.threshold) {
		w.Fatalf("%d ppm are promised, by the account %d, the threshold is %d", got, w.core.Promised(), w.threshold)
	}
}

// drawTask is a server of the next table in a slot.
func (w *world) drawTask(slot int) governor.Server {
	t := w.T
	period := rapid.SampledFrom([]int64{1000, 3000, 5000, 10_000}).Draw(t, "period")
	low := rapid.Int64Range(period/50, period/3).Draw(t, "low")
	high := rapid.Int64Range(low, min(low*3, period*9/10)).Draw(t, "high")
	s := srv(slot, rapid.SampledFrom([]string{"Low", "Middle", "High"}).Draw(t, "criticality"), low, high)
	s.ID = fmt.Sprint("s", slot, rapid.SampledFrom([]string{"", "", "", "b"}).Draw(t, "id"))
	s.Cgroup = "/" + s.ID
	s.PeriodUs, s.DeadlineUs = period, rapid.SampledFrom([]int64{period, max(high, period*2/3)}).Draw(t, "deadline")
	s.Limited = rapid.Bool().Draw(t, "limited")
	s.Mode = rapid.SampledFrom([]string{table.Elastic, table.Elastic, table.Reserved}).Draw(t, "mode")
	s.LeastUs = rapid.SampledFrom([]int64{low, low, low, high}).Draw(t, "least")
	s.RaiseToUs = rapid.SampledFrom([]int64{high, high, (low + high) / 2, 0}).Draw(t, "to")
	s.DwellUs = rapid.SampledFrom([]int64{0, 1, 20_000}).Draw(t, "dwell")
	if mid := (low + high) / 2; mid > low && mid < high && rapid.Bool().Draw(t, "level") {
		s.LevelsUs = []int64{mid}
	}
	return s
}

// load draws a table; what the former one had may stay as it was.
func (w *world) load(t *rapid.T) {
	w.T = t
	var specs []governor.Server
	plan := table.Plan{Core: 1, ThresholdPpm: w.threshold}
	if w.threshold == 0 {
		plan.ThresholdPpm = rapid.SampledFrom([]int64{900_000, 900_000, 600_000, 0}).Draw(t, "threshold")
	}
	plan.MaxRaised = rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "windows")
	for slot := range 6 {
		former := w.tasks[slot]
		switch choice := rapid.IntRange(0, 5).Draw(t, "choice"); {
		case choice == 0:
		case choice < 4 && former != nil:
			s := former.spec
			s.Leaving = rapid.IntRange(0, 5).Draw(t, "leaving") == 0
			w.stayed = w.stayed || former.spec.Leaving && !s.Leaving
			specs = append(specs, s)
		default:
			specs = append(specs, w.drawTask(slot))
		}
	}
	for _, s := range specs {
		if s.Criticality == "Low" {
			plan.Squeeze = append(plan.Squeeze, table.Squeeze{ID: s.ID, FloorUs: max(1, s.LowUs/2)})
		}
	}
	w.apply(specs, plan)
}

func (w *world) apply(specs []governor.Server, plan table.Plan) {
	former := w.tasks
	w.tasks = map[int]*task{}
	for _, s := range specs {
		t := former[s.Slot]
		if t == nil || t.spec.ID != s.ID || t.spec.PeriodUs != s.PeriodUs || t.spec.DeadlineUs != s.DeadlineUs {
			t = &task{current: -1}
			w.all = append(w.all, t)
		}
		t.spec, w.tasks[s.Slot] = s, t
		t.owed = min(t.owed, s.LowUs)
	}
	for slot, t := range former {
		t.gone = w.tasks[slot] != t
	}
	w.loaded, w.plan = specs, plan
	w.limit = rt.PPM(plan.ThresholdPpm)
	if w.limit == 0 {
		w.limit = rt.MaxCapacity
	}
	w.loadCore()
}

func (w *world) loadCore() {
	refused := map[int]bool{}
	for _, f := range w.core.Load(w.loaded, w.plan, w.now, w) {
		refused[f.Slot] = true
	}
	for slot, t := range w.tasks {
		if !refused[slot] {
			t.owe()
		}
	}
}

// again loads the same table. Who was to leave has gone, or could not.
func (w *world) again(t *rapid.T) {
	w.T = t
	var specs []governor.Server
	for _, s := range w.loaded {
		if s.Leaving && rapid.Bool().Draw(t, "left") {
			w.happened["left"]++
			continue
		}
		w.stayed = w.stayed || s.Leaving
		s.Leaving = false
		specs = append(specs, s)
	}
	w.apply(specs, w.plan)
}

// restart begins with a new agent, that loads what the former had loaded.
func (w *world) restart(t *rapid.T) {
	w.T = t
	if w.threshold == 0 {
		return // more may be promised than the last plan allows, by an earlier one
	}
	for _, k := range w.all {
		if k.gone && k.current >= 0 && w.intervals[k.current].deadline > w.now {
			return // the next agent cannot know of it
		}
	}
	w.happened["restart"]++
	w.options.Started = w.now
	w.core = governor.New(w.options)
	w.now += rapid.Int64Range(0, 5*ms).Draw(t, "absence")
	for slot, k := range w.tasks {
		w.core.InForce(slot, k.budget)
		if k.owed < k.spec.LowUs {
			k.owed = min(k.owed, k.budget) // the table asks for more than it was granted, and what that was is not in it
		}
	}
	w.loadCore()
}

func (w *world) any(t *rapid.T) *task {
	w.T = t
	slots := make([]int, 0, len(w.tasks))
	for slot, k := range w.tasks {
		if k.budget > 0 {
			slots = append(slots, slot)
		}
	}
	if len(slots) == 0 {
		return nil
	}
	slices.Sort(slots)
	return w.tasks[rapid.SampledFrom(slots).Draw(t, "slot")]
}

func (w *world) overrun(t *rapid.T) {
	k := w.any(t)
	if k == nil {
		return
	}
	w.release(k)
	i := w.intervals[k.current]
	if w.now >= i.deadline {
		return
	}
	tell := w.core.Alarm
	switch rapid.IntRange(0, 7).Draw(t, "tell") {
	case 0, 1:
		tell = w.core.End
	case 2:
		used := k.budget * 1000 * rapid.Int64Range(2, 50).Draw(t, "budgets")
		w.happened["debt"]++
		tell = func(slot int, release, now int64, set governor.Setter) governor.Outcome {
			return w.core.Owes(slot, release, used, now, set)
		}
	}
	w.happened[tell(k.spec.Slot, i.release, w.now, w).Kind.String()]++
}

func (w *world) clean(t *rapid.T) {
	if k := w.any(t); k != nil {
		w.release(k)
		w.happened[w.core.Clean(k.spec.Slot, w.now, w).Kind.String()]++
	}
}

func (w *world) stranger(t *rapid.T) {
	w.T = t
	if got := w.core.Alarm(rapid.IntRange(6, 3000).Draw(t, "slot"), w.now, w.now, w); got.Kind != governor.None {
		t.Fatalf("an unknown slot: %v", got)
	}
}

// pass lets time pass; others begin their periods meanwhile.
func (w *world) pass(t *rapid.T) {
	w.T = t
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		w.now += rapid.Int64Range(1, 600_000).Draw(t, "ns")
		for slot := range 6 {
			if k := w.tasks[slot]; k != nil && rapid.Bool().Draw(t, "runs") {
				w.release(k)
			}
		}
		if rapid.Bool().Draw(t, "tick") {
			w.tick(t)
		}
	}
}

func (w *world) tick(t *rapid.T) {
	w.T = t
	if next := w.core.Tick(w.now, w); next != 0 && next <= w.now {
		t.Fatalf("the next tick is %d ns ago", w.now-next)
	}
}

// promised is the sum of the rates that cover an instant.
func (w *world) promised(at int64) rt.PPM {
	total := rt.PPM(0)
	for _, i := range w.intervals {
		if i.release <= at && at < i.deadline {
			total += rt.Server{Period: i.spec.PeriodUs, Deadline: i.spec.DeadlineUs, Low: i.budget, High: i.budget}.Charge(w.options.GranularityUs)
		}
	}
	return total
}

// check compares the core with the model.
func (w *world) check(t *rapid.T) {
	w.T = t
	if w.core.Broken() != 0 {
		t.Fatalf("the core says that the plan was broken %d times", w.core.Broken())
	}
	for slot, k := range w.tasks {
		if got := w.core.State(slot).BudgetUs; got != k.budget {
			t.Fatalf("slot %d: %d us in the state, %d in force", slot, got, k.budget)
		}
	}
	if raised := w.core.Raised(); raised > 0 {
		w.happened["raised"]++
	}
}

// checkAll is the invariant at every instant at which more may be promised than before, where all tables have the
// same threshold.
func (w *world) checkAll(t *rapid.T) {
	if w.threshold == 0 {
		return
	}
	for _, i := range w.intervals {
		if got := w.promised(i.release); got > rt.PPM(w.threshold) {
			t.Fatalf("%d ppm were promised at %d us, the threshold is %d", got, (i.release-start)/1000, w.threshold)
		}
	}
}

// rest lets everything be clean for long. Who gave way or was raised has what tables granted it afterwards.
func (w *world) rest(t *rapid.T) {
	w.again(t)
	w.resting = true
	for range 200 {
		w.now += 50 * ms
		for slot := range 6 {
			w.core.Clean(slot, w.now, w)
		}
		w.tick(t)
	}
	for slot, k := range w.tasks {
		if w.threshold != 0 && !w.stayed && k.budget < k.owed {
			t.Fatalf("slot %d was granted %d us and is left with %d: %+v", slot, k.owed, k.budget, w.core.State(slot))
		}
	}
}

func newWorld(t *rapid.T, happened map[string]int) *world {
	o := governor.Options{GranularityUs: rapid.SampledFrom([]int64{0, 100}).Draw(t, "granularity")}
	w := &world{T: t, options: o, now: start, tasks: map[int]*task{}, happened: happened}
	if rapid.Bool().Draw(t, "seen") {
		w.options.Seen = w.seen
	}
	w.threshold = rapid.SampledFrom([]int64{0, 500_000, 900_000}).Draw(t, "of all")
	w.core = governor.New(w.options)
	w.load(t)
	return w
}

// seen is when a slot ran last: until the end of its period, as far as one can know.
func (w *world) seen(slot int) int64 {
	k := w.tasks[slot]
	if k == nil || k.current < 0 {
		return 0
	}
	return min(w.now, w.intervals[k.current].release)
}

// Whatever the tables, overruns, refusals and restarts: at no instant is more promised than the plan allows.
func TestNoMoreIsPromisedThanThePlanAllows(t *testing.T) {
	happened := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, happened)
		t.Repeat(map[string]func(*rapid.T){
			"load": w.load, "again": w.again, "restart": w.restart, "overrun": w.overrun, "overrun too": w.overrun,
			"clean": w.clean, "pass": w.pass, "pass on": w.pass, "tick": w.tick, "stranger": w.stranger, "": w.check,
		})
		w.rest(t)
		w.checkAll(t)
	})
	t.Log(happened)
	for _, kind := range []string{"Raised", "Partial", "Denied", "Refused", "Counted", "Recovered", "debt", "restart", "write refused", "left"} {
		if happened[kind] == 0 {
			t.Errorf("%s never happened", kind)
		}
	}
}
