package rtruntime_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// hold has the claim of a container be one that the controller made at a second of its own.
func (m *machine) hold(pod string, second int) {
	claim := m.claims[pod].(*resourcev1.ResourceClaim).DeepCopy()
	claim.Labels = map[string]string{v1alpha1.LabelHeldFor: pod}
	claim.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(second)*time.Second - time.Hour))
	m.claims[pod] = claim
}

func (m *machine) isHeld(pod string) bool {
	return len(m.claims[pod].(*resourcev1.ResourceClaim).Labels) > 0
}

// rivals are two allocators of a node's cores: one of the controller, and the scheduler. Each sees its own
// claims at once, and those of the other some events later.
type rivals struct {
	*drawnMachine
	// past are the claims after each event.
	past []map[string]runtime.Object
}

// sees are the claims as one of the two knows them: its own of now, the other's of some events ago.
func (r *rivals) sees(t *rapid.T, held bool) *machine {
	old := r.past[max(0, len(r.past)-1-rapid.IntRange(0, 4).Draw(t, "lag"))]
	known := *r.machine
	known.claims = map[string]runtime.Object{}
	for name, claim := range r.claims {
		if _, seen := old[name]; seen || r.isHeld(name) == held {
			known.claims[name] = claim
		}
	}
	return &known
}

// allocate gives a new container a core as one of the two would, on what it sees.
func (r *rivals) allocate(t *rapid.T) {
	r.made++
	name, held := fmt.Sprintf("p%02d", r.made), rapid.Bool().Draw(t, "held")
	low := rapid.Int64Range(1, 60).Draw(t, "low")
	known := r.sees(t, held)
	k := r.add(name, rapid.SampledFrom([]mcv1.Criticality{"Low", "Middle", "High"}).Draw(t, "criticality"), low, low, 0)
	delete(r.claims, name)
	server, err := rtdra.ServerOf(k, types.UID(name), "app")
	if err != nil {
		t.Fatal(err)
	}
	for _, core := range known.view(r.TB).Cores {
		if core.Claimed+server.Charge(granularity) > core.Capacity {
			continue
		}
		r.claim(name, core.ID)
		if held {
			r.hold(name, r.made)
		}
		r.past = append(r.past, maps.Clone(r.claims))
		return
	}
	r.leave(name)
}

// schedulersRun fails unless every container with a claim of the scheduler is in the spec.
func (r *rivals) schedulersRun(t *rapid.T, d rtruntime.Decision) {
	for name := range r.claims {
		if r.isHeld(name) || slices.ContainsFunc(d.Spec.Servers, func(e v1alpha1.RTServer) bool { return e.Pod == name }) {
			continue
		}
		t.Fatalf("%s lost its core, though the scheduler gave it one: %s", name, spec(d.Spec))
	}
}

// letGo takes the claims that give way back. It fails for one of the scheduler, or when an older one gives way and a
// younger one on its core does not.
func (r *rivals) letGo(t *rapid.T, d rtruntime.Decision) {
	giving, youngest := rtruntime.Overbooked(r.view(r.TB)), map[string]time.Time{}
	core := func(name string) (*resourcev1.ResourceClaim, string) {
		claim := r.claims[name].(*resourcev1.ResourceClaim)
		return claim, claim.Status.Allocation.Devices.Results[0].Device
	}
	for name := range r.claims {
		if claim, on := core(name); r.isHeld(name) && !giving[claim.UID] && claim.CreationTimestamp.After(youngest[on]) {
			youngest[on] = claim.CreationTimestamp.Time
		}
	}
	for _, name := range slices.Collect(maps.Keys(r.claims)) {
		claim, on := core(name)
		if !giving[claim.UID] {
			continue
		}
		if !r.isHeld(name) || claim.CreationTimestamp.Time.Before(youngest[on]) {
			t.Fatalf("%s gives way on %s", name, on)
		}
		if slices.ContainsFunc(d.Spec.Servers, func(e v1alpha1.RTServer) bool { return e.Pod == name }) {
			t.Fatalf("%s gives way and is in the spec: %s", name, spec(d.Spec))
		}
		r.leave(name)
	}
	r.past = append(r.past, maps.Clone(r.claims))
}

// Two allocators that see each other late overbook cores. No spec ever does, no container of the scheduler
// loses its core, and as soon as the cache shows the overbooking it is gone.
func TestTwoAllocatorsNeverOverbookForLong(t *testing.T) {
	overbookings := 0
	rapid.Check(t, func(rt *rapid.T) {
		r := &rivals{drawnMachine: &drawnMachine{machine: newMachine(rapid.IntRange(1, 3).Draw(rt, "cores")), TB: t, now: start}}
		r.past = []map[string]runtime.Object{{}}
		for range rapid.IntRange(1, 12).Draw(rt, "events") {
			for range rapid.IntRange(1, 4).Draw(rt, "at once") {
				r.allocate(rt)
			}
			overbookings += len(rtruntime.Overbooked(r.view(t)))
			d := r.settle(t, r.pressure, r.now)
			r.check(rt, d)
			r.schedulersRun(rt, d)
			r.letGo(rt, d)
			if left := r.overfull(); left != "" {
				rt.Fatalf("still overbooked: %s", left)
			}
			if again := rtruntime.Overbooked(r.view(t)); len(again) > 0 {
				rt.Fatalf("%v give way, though everything fits", again)
			}
		}
	})
	if overbookings == 0 {
		t.Error("the two never met on a core")
	}
}

// overfull names a core whose claims are more than it has.
func (r *rivals) overfull() string {
	for _, core := range r.view(r.TB).Cores {
		if core.Claimed > core.Capacity {
			return fmt.Sprintf("core %d: %d of %d", core.ID, core.Claimed, core.Capacity)
		}
	}
	return ""
}

func TestWhatGivesWay(t *testing.T) {
	tests := map[string]struct {
		held   string // in the order of their age
		change func(*machine)
		want   string
	}{
		"nobody when all fits":                   {"a", func(m *machine) { delete(m.claims, "c") }, "a@0 low 40/40, b@0 low 40/40"},
		"the youngest":                           {"ab", func(*machine) {}, "a@0 low 40/40, c@0 low 40/40"},
		"one that is more critical":              {"b", func(m *machine) { m.mckubes["c"].Spec.Criticality = "Low" }, "a@0 low 40/40, c@0 low 40/40"},
		"one that runs for long":                 {"a", func(m *machine) { m.settleWithout(t, "c") }, "b@0 low 40/40, c@0 low 40/40"},
		"not one of the scheduler":               {"", func(*machine) {}, "a@0 low 40/40, b@0 low 40/40"},
		"not for settings that nobody has paid":  {"a", func(m *machine) { delete(m.claims, "c"); m.mckubes["b"].Spec.RTSettings.RuntimeHi = 80_000 }, "a@0 low 40/40"},
		"not to a claim that is paid but unused": {"a", func(m *machine) { delete(m.mckubes, "c") }, "b@0 low 40/40"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(1)
			for _, pod := range []string{"a", "b", "c"} {
				m.add(pod, "High", 40, 40, 0)
			}
			for second, pod := range test.held {
				m.hold(string(pod), second)
			}
			test.change(m)
			expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), test.want)
		})
	}
}

// settleWithout has the node run all but one container.
func (m *machine) settleWithout(t testing.TB, name string) {
	claim := m.claims[name]
	delete(m.claims, name)
	m.settle(t, rtruntime.Pressure{}, start)
	m.claims[name] = claim
}

// A held claim pays for a budget only when the scheduler's claim on the same room, if any, has been seen.
func TestAHeldClaimSettlesBeforeItPays(t *testing.T) {
	m := newMachine(1)
	m.add("a", "High", 40, 40, 0)
	m.hold("a", 3600)
	d := m.settle(t, rtruntime.Pressure{}, start.Add(500*time.Millisecond))
	expectSpec(t, d, "")
	if d.Wake != 1500*time.Millisecond || len(d.Refused) > 0 {
		t.Errorf("looks again after %s, refused %v", d.Wake, d.Refused)
	}
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start.Add(2*time.Second)), "a@0 low 40/40")
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "a@0 low 40/40") // it runs: a clock that jumps back changes nothing
}

func TestWhoGivesWayAgainWaitsLonger(t *testing.T) {
	p, now := rtruntime.NewPatience(), start
	var waits []time.Duration
	for range 12 {
		p.GaveWay("a", now)
		p.GaveWay("a", now) // a write that failed is tried again
		wait := p.Wait("a", now)
		waits = append(waits, wait)
		now = now.Add(wait)
	}
	if waits[0] != time.Second || waits[3] != 8*time.Second || waits[11] != 5*time.Minute || p.Wait("b", now) != 0 {
		t.Errorf("waits %v", waits)
	}
	now = now.Add(time.Hour)
	p.GaveWay("b", now)
	p.GaveWay("a", now)
	if got := p.Wait("a", now); got != time.Second {
		t.Errorf("after an hour of peace it waits %s", got)
	}
	if got := p.Wait("a", now.Add(-24*time.Hour)); got > 5*time.Minute {
		t.Errorf("after the clock jumped back it waits %s", got)
	}
}

// The scheduler gives the core of an adopted container away: the container leaves the node first, then its
// claim, and it gets the other core; when that happens again it is said that there is none.
func TestAnAdoptedContainerGivesWayToTheScheduler(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 2)
	p := o.bare("p", n.Name, "app")
	o.mckube("m", "p", 50, 50)
	o.settle([]string{n.Name}, "m")
	for core, rival := range []string{"first", "second"} {
		if got, want := o.cores(p), fmt.Sprintf("app-rt=501000@core-%d", core); got != want {
			t.Fatalf("claims %s, want %s", got, want)
		}
		winner := o.run(rival, n.Name, "Low", 60, 60, core)
		if wait, err := o.serve("m"); err != nil || wait <= 0 || o.cores(p) == "" {
			t.Errorf("before the node was told: looks again after %s, claims %q, %v", wait, o.cores(p), err)
		}
		o.settle([]string{n.Name}, "m")
		o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "LostRace")
		servers := o.rtNode(n.Name).Spec.Servers
		if got := o.cores(p); got != "" || slices.ContainsFunc(servers, func(e v1alpha1.RTServer) bool { return e.PodUID == p.UID }) {
			t.Errorf("after it gave way: claims %q, spec %s", got, spec(o.rtNode(n.Name).Spec))
		}
		if !slices.ContainsFunc(servers, func(e v1alpha1.RTServer) bool { return e.PodUID == winner.UID }) {
			t.Errorf("the scheduler's does not run: %s", spec(o.rtNode(n.Name).Spec))
		}
		o.clock.Step(time.Minute)
		o.settle([]string{n.Name}, "m")
	}
	o.is("m", mcv1.ConditionAdmitted, metav1.ConditionFalse, "NoCoreFits")
	if got := o.cores(p); got != "" {
		t.Errorf("claims %s", got)
	}
}

// Whatever write the controller dies before while a claim gives way: the container ends with one claim, on the other core,
// which tells the scheduler when it goes.
func TestAClaimGivesWayWhateverHappens(t *testing.T) {
	for _, at := range sampling.Points(t, 1, 7, deathsPerStory) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			o := newCluster(t).office()
			o.prefix += fmt.Sprintf("%d-", at)
			n := o.node("n", 2)
			p := o.bare("p", n.Name, "app")
			o.mckube("m", "p", 50, 50)
			o.settle([]string{n.Name}, "m")
			winner := o.run("w", n.Name, "Low", 60, 60, 0)
			o.Writes, o.DieAt = 0, at
			for range 3 {
				o.settle([]string{n.Name}, "m")
				o.clock.Step(time.Minute)
			}
			want := fmt.Sprintf("%s@1 low 50/50, %s@0 low 60/60", p.Name, winner.Name)
			if p.UID > winner.UID {
				want = fmt.Sprintf("%s@0 low 60/60, %s@1 low 50/50", winner.Name, p.Name)
			}
			if got := spec(o.rtNode(n.Name).Spec); got != want || o.cores(p) != "app-rt=501000@core-1" {
				t.Errorf("spec %s, want %s; claims %s", got, want, o.cores(p))
			}
			for _, claim := range o.held(p) {
				if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
					t.Errorf("claim %s may go before the scheduler is told", claim.Name)
				}
			}
			o.is("m", mcv1.ConditionPlaced, metav1.ConditionTrue, "Ready")
		})
	}
}

// The claim of a budget that grew gives way before it pays: the container runs on with the old budget.
func TestTheClaimOfAGrowthGivesWay(t *testing.T) {
	o := newCluster(t).office()
	n := o.node("n", 1)
	p := o.run("p", n.Name, "High", 20, 20, 0)
	o.settle([]string{n.Name}, "p")
	o.change("p", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeLow, m.Spec.RTSettings.RuntimeHi = 50_000, 50_000 })
	if _, err := o.serve("p"); err != nil {
		t.Fatal(err)
	}
	if got, want := o.cores(p), "app-rt-1=300000@core-0"; got != want {
		t.Errorf("claims %s, want %s", got, want)
	}
	winner := o.run("w", n.Name, "Low", 60, 60, 0)
	o.settle([]string{n.Name}, "p")
	o.is("p", mcv1.ConditionAdmitted, metav1.ConditionFalse, "BudgetKept")
	budgets := map[types.UID]int64{}
	for _, e := range o.rtNode(n.Name).Spec.Servers {
		budgets[e.PodUID] = e.BudgetHighUs
	}
	if want := map[types.UID]int64{p.UID: 20_000, winner.UID: 60_000}; !maps.Equal(budgets, want) || len(o.held(p)) > 0 {
		t.Errorf("budgets %v, want %v; held %s", budgets, want, o.cores(p))
	}
}

// A McKube whose claim gives way is woken by the claim of the other.
func TestWhoHasToGiveWayIsWoken(t *testing.T) {
	m := newMachine(1)
	m.add("a", "High", 40, 40, 0)
	m.hold("a", 1)
	m.add("b", "High", 40, 40, 0)
	before := m.view(t)
	m.add("c", "High", 40, 40, 0)
	if got := rtruntime.Concerned(before, m.view(t)); !slices.Contains(got, rtdra.ServerID("a", "app")) {
		t.Errorf("woken are %v", got)
	}
}
