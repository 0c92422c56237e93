package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// What a runtime makes a group with is what it will have once it is loaded.
func TestFirst(t *testing.T) {
	t.Parallel()
	middle, least := srv(1, "Middle", 4000, 4000), least(srv(1, "Low", 4000, 6000), 5000)
	unlisted := srv(7, "Low", 3000, 3000)
	for name, test := range map[string]struct {
		spec   governor.Server
		raised bool
		want   int64
	}{
		"nobody is raised":                   {srv(1, "Low", 4000, 4000), false, 4000},
		"a victim":                           {srv(1, "Low", 4000, 4000), true, 2000},
		"one that the plan does not know":    {unlisted, true, 1500},
		"one that is no victim":              {middle, true, 4000},
		"the table asks for more than low":   {least, true, 5000},
		"one that makes no sense":            {srv(1, "Lowest", 4000, 4000), true, 4000},
		"as critical as the one that is up":  {srv(7, "High", 3000, 4000), true, 3000},
		"a victim with a higher high budget": {srv(1, "Low", 4000, 6000), true, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			b := twoModes(t).begun()
			if test.raised {
				b.alarm(0, 0, governor.Raised)
			}
			plan := b.plan
			if test.spec.Criticality == "Middle" {
				plan = table.Plan{Core: 1}
			}
			if got := b.First(test.spec, b.servers, plan, b.now); got != test.want {
				t.Errorf("%d us, want %d", got, test.want)
			}
		})
	}
}

// What is reserved is in force from the start where the governor pays for it, and nowhere else.
func TestFirstOfAReserve(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others []governor.Server
		spec   governor.Server
		want   int64
	}{
		"on an empty core":                 {nil, reserved(srv(1, "High", 2000, 5000)), 5000},
		"full to the last ppm":             {[]governor.Server{srv(0, "High", 2000, 4000)}, reserved(srv(1, "High", 2000, 5000)), 5000},
		"on a core that is too full":       {[]governor.Server{srv(0, "High", 2000, 4100)}, reserved(srv(1, "High", 2000, 5000)), 2000},
		"beside a Limited server":          {[]governor.Server{limited(srv(0, "High", 2000, 4100))}, reserved(srv(1, "High", 2000, 5000)), 5000},
		"of a Limited server":              {nil, reserved(limited(srv(1, "High", 2000, 5000))), 2000},
		"that the plan does not know":      {nil, reserved(unplanned(srv(1, "High", 2000, 5000))), 2000},
		"of a Low server":                  {nil, reserved(srv(1, "Low", 2000, 5000)), 5000},
		"of a Low server without a plan":   {nil, reserved(unplanned(srv(1, "Low", 2000, 5000))), 2000},
		"when it asks for its high budget": {nil, reserved(least(srv(1, "High", 2000, 5000), 5000)), 5000},
		"its former group has not let go":  {[]governor.Server{srv(1, "High", 2000, 5000)}, reserved(srv(1, "High", 2000, 5000)), 2000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, 900_000, test.others...).begun()
			b.plan.MaxRaised = 1
			if got := b.First(test.spec, b.servers, b.plan, b.now); got != test.want {
				t.Errorf("%d us, want %d", got, test.want)
			}
		})
	}
}

// A server that the table has, and that has not come yet, counts as well.
func TestFirstBesideWhoIsToCome(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000).begun()
	s, other := reserved(srv(0, "High", 2000, 5000)), reserved(srv(1, "High", 2000, 5000))
	if got := b.First(s, []governor.Server{s, other}, b.plan, b.now); got != 2000 {
		t.Errorf("%d us; want its low budget, for both do not fit", got)
	}
}

// Room that is held until a server's deadline is not there yet.
func TestFirstBesideWhatIsHeld(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 5000, 5000), srv(1, "Low", 1000, 1000)).begun()
	b.servers = b.servers[1:]
	b.load(0)
	s := reserved(srv(2, "High", 2000, 5000))
	if got := b.First(s, b.servers, b.plan, b.now); got != 2000 {
		t.Errorf("%d us while it is held", got)
	}
	b.pass(10 * ms)
	if got := b.First(s, b.servers, b.plan, b.now); got != 5000 {
		t.Errorf("%d us when it is free", got)
	}
}

// What one server was told to begin with no other is told, until it is loaded.
func TestFirstBesideWhatAnotherWasTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then func(*bench)
		want int64
	}{
		"nothing happens":       {func(*bench) {}, 2000},
		"it is asked for again": {func(b *bench) { b.First(b.servers[1], b.servers, b.plan, b.now) }, 2000},
		"others are loaded":     {func(b *bench) { b.Load(b.servers[:1], b.plan, b.now, b.kernel) }, 2000},
		"it is loaded": {func(b *bench) {
			b.InForce(1, 4000)
			b.budgets[1] = 4000
			b.Load(b.servers[:2], b.plan, b.now, b.kernel)
		}, 2000},
		"it leaves the table": {func(b *bench) { b.servers = append(b.servers[:1:1], b.servers[2:]...) }, 4000},
		"the room is free":    {func(b *bench) { b.pass(10 * ms) }, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			all := []governor.Server{srv(0, "Low", 100, 100), reserved(srv(1, "High", 2000, 4000)), reserved(srv(2, "High", 2000, 4000)), srv(3, "High", 4800, 4800)}
			b := newBench(t, governor.Options{}, 900_000, all[0], all[3]).begun()
			b.servers = all[:1:1]
			b.load(0) // one leaves, and its room is held
			b.servers = all[:3:3]
			if got := b.First(all[1], b.servers, b.plan, b.now); got != 4000 {
				t.Fatalf("the first was told %d us", got)
			}
			test.then(b)
			if got := b.First(all[2], b.servers, b.plan, b.now); got != test.want {
				t.Errorf("%d us, want %d", got, test.want)
			}
		})
	}
}

// A new server that has more than the table grants it, where there is no room for that, is a defect of the process that
// gave it. What it has too much is taken from it.
func TestWhoComesWithTooMuch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		threshold int64
		windows   int
		second    governor.Server
		broken    uint64
		budget    int64
	}{
		"room for both":         {900_000, 0, srv(1, "High", 2000, 4000), 0, 4000},
		"no room":               {700_000, 0, srv(1, "High", 2000, 4000), 1, 2000},
		"no window":             {900_000, 1, limited(srv(1, "High", 2000, 4000)), 1, 2000},
		"windows for both":      {900_000, 2, limited(srv(1, "High", 2000, 4000)), 0, 4000},
		"what it asks for only": {500_000, 0, srv(1, "High", 2000, 2000), 0, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, test.threshold, limited(srv(0, "High", 2000, 4000)))
			b.plan.MaxRaised = test.windows
			b.begun()
			b.alarm(0, 0, governor.Raised)
			b.servers = append(b.servers, test.second)
			b.budgets[1] = test.second.HighUs
			b.InForce(1, b.budgets[1])
			b.load(0)
			if got := b.budgets[1]; got != test.budget || b.Broken() != test.broken {
				t.Errorf("%d us, want %d; broken %d times, want %d", got, test.budget, b.Broken(), test.broken)
			}
		})
	}
}

// What an earlier agent gave is no defect of ours; a plan that has fewer windows now ends raises all the same.
func TestWindowsAfterARestart(t *testing.T) {
	b := newBench(t, governor.Options{Started: start - ms}, 900_000, limited(srv(0, "High", 2000, 4000)), limited(srv(1, "Middle", 2000, 4000)))
	b.plan.MaxRaised = 1
	for slot := range 2 {
		b.InForce(slot, 4000)
		b.budgets[slot] = 4000
	}
	b.load(0)
	b.has(4000, 2000)
}

func TestAPlanWithFewerWindows(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, limited(srv(0, "High", 2000, 4000)), limited(srv(1, "Middle", 2000, 4000)))
	b.plan.MaxRaised = 2
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.alarm(1, 0, governor.Raised)
	b.has(4000, 4000)
	b.plan.MaxRaised = 1
	b.load(0)
	b.has(4000, 2000)
}
