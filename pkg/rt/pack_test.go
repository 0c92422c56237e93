package rt_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func on(id int, servers ...rt.Server) rt.Load {
	return rt.Load{Core: rt.Core{ID: id, Sibling: rt.NoSibling, Capacity: 900_000}, Servers: servers}
}

func TestBestCore(t *testing.T) {
	busy, half, idle := on(0, percent("a", rt.Low, 70, 70)), on(1, percent("b", rt.Low, 45, 45)), on(3)
	cores := []rt.Load{idle, busy, half}
	prefer := func(s rt.Server, cores ...int) rt.Server {
		s.Preferred = cores
		return s
	}
	worst := func(s rt.Server) rt.Server {
		s.Fit = rt.WorstFit
		return s
	}
	for name, c := range map[string]struct {
		cores  []rt.Load
		server rt.Server
		want   int
		reason string
	}{
		"worst fit: the largest gap":              {cores, worst(percent("s", rt.Low, 20, 20)), 3, "Fits"},
		"worst fit: preferred cores first":        {cores, worst(prefer(percent("s", rt.Low, 20, 20), 0)), 0, "Fits"},
		"worst fit: the lower number":             {[]rt.Load{on(7), on(5), on(6)}, worst(percent("s", rt.Low, 20, 20)), 5, "Fits"},
		"worst fit: none, which one came nearest": {cores, worst(percent("s", rt.Low, 95, 95)), 3, "CoreFull"},
		"the smallest gap that fits":              {cores, percent("s", rt.Low, 20, 20), 0, "Fits"},
		"the next if it does not":                 {cores, percent("s", rt.Low, 40, 40), 1, "Fits"},
		"an idle one if need be":                  {cores, percent("s", rt.Low, 60, 60), 3, "Fits"},
		"preferred cores first, in order":         {cores, prefer(percent("s", rt.Low, 20, 20), 3, 1), 3, "Fits"},
		"those that fit":                          {cores, prefer(percent("s", rt.Low, 40, 40), 0, 1), 1, "Fits"},
		"any other if no preferred one fits":      {cores, prefer(percent("s", rt.Low, 40, 40), 0), 1, "Fits"},
		"a preferred core that does not exist":    {cores, prefer(percent("s", rt.Low, 20, 20), 15), 0, "Fits"},
		"equal gaps: the lower number":            {[]rt.Load{on(7), on(5), on(6)}, percent("s", rt.Low, 20, 20), 5, "Fits"},
		"none: the one that came nearest":         {cores, percent("s", rt.Low, 95, 95), 3, "CoreFull"},
		"no cores at all":                         {nil, percent("s", rt.Low, 20, 20), 0, "NoCore"},
	} {
		t.Run(name, func(t *testing.T) {
			core, v, ok := rt.BestCore(c.cores, c.server)
			if core != c.want || v.Reason != c.reason || ok != (c.reason == "Fits") {
				t.Errorf("core %d, %v, %v; want %d, %s", core, v, ok, c.want, c.reason)
			}
		})
	}
}

// The example of the seed: Middle 40 % and Low 35 % on core 2, and a High of 25 % arrives.
func TestVictimsOfTheSeedsExample(t *testing.T) {
	load := on(2, percent("middle", rt.Middle, 40, 40), percent("low", rt.Low, 35, 35))
	high := percent("high", rt.High, 25, 25)
	if v := rt.Admit(load.Core, load.Servers, high); v.Admitted || v.Used+v.Need != 1_000_000 {
		t.Fatalf("%v", v)
	}
	victims, ok := rt.Victims(load, high)
	if !ok || len(victims) != 1 || victims[0].ID != "low" {
		t.Errorf("victims %v, %v; want low", victims, ok)
	}
}

func TestVictims(t *testing.T) {
	for name, c := range map[string]struct {
		load   rt.Load
		server rt.Server
		want   []string
		ok     bool
	}{
		"none if it fits":               {on(0, percent("a", rt.Low, 50, 50)), percent("s", rt.High, 40, 40), nil, true},
		"never an equal":                {on(0, percent("a", rt.High, 50, 50)), percent("s", rt.High, 50, 50), nil, false},
		"nor a higher":                  {on(0, percent("a", rt.High, 50, 50)), percent("s", rt.Middle, 50, 50), nil, false},
		"nor for Low":                   {on(0, percent("a", rt.Low, 50, 50)), percent("s", rt.Low, 50, 50), nil, false},
		"not itself":                    {on(0, percent("s", rt.High, 50, 50), percent("a", rt.Low, 40, 40)), percent("s", rt.High, 60, 60), []string{"a"}, true},
		"one large before two small":    {on(0, percent("a", rt.Low, 20, 20), percent("b", rt.Low, 20, 20), percent("c", rt.Middle, 40, 40)), percent("s", rt.High, 40, 40), []string{"c"}, true},
		"of equal number the lower":     {on(0, percent("a", rt.Low, 30, 30), percent("b", rt.Middle, 30, 30)), percent("s", rt.High, 50, 50), []string{"a"}, true},
		"of equal criticality the less": {on(0, percent("a", rt.Low, 40, 40), percent("b", rt.Low, 30, 30)), percent("s", rt.High, 50, 50), []string{"b"}, true},
		"all if need be":                {on(0, percent("a", rt.Low, 40, 40), percent("b", rt.Low, 30, 30)), percent("s", rt.High, 90, 90), []string{"a", "b"}, true},
		"not for nonsense":              {on(0, percent("a", rt.Low, 40, 40)), rt.Server{ID: "s", Criticality: rt.High}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			victims, ok := rt.Victims(c.load, c.server)
			if got := ids(victims); ok != c.ok || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v; want %v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func ids(servers []rt.Server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.ID)
	}
	slices.Sort(out)
	return out
}

func drawServer(t *rapid.T, id string) rt.Server {
	period := rapid.SampledFrom([]int64{1_000, 10_000, 16_000}).Draw(t, "period")
	low := period * rapid.Int64Range(1, 40).Draw(t, "low") / 100
	return rt.Server{
		ID: id, Criticality: rt.Criticality(rapid.IntRange(0, 2).Draw(t, "criticality")), Period: period,
		Low: low, High: min(low+period*rapid.Int64Range(0, 20).Draw(t, "step")/100, period*95/100),
		Priority: rapid.IntRange(0, 3).Draw(t, "priority"), Limited: rapid.IntRange(0, 4).Draw(t, "limited") == 0,
	}
}

func drawRTCore(t *rapid.T, id int) rt.Core {
	return rt.Core{
		ID: id, Sibling: rt.NoSibling, Capacity: rt.PPM(rapid.Int64Range(500_000, 900_000).Draw(t, "capacity")),
		EscalationReserve: rt.PPM(rapid.SampledFrom([]int64{0, 150_000}).Draw(t, "reserve")),
		Granularity:       rapid.SampledFrom([]int64{0, 100}).Draw(t, "granularity"),
		Policy:            rapid.SampledFrom([]rt.Policy{rt.EDF, rt.EDF, rt.EDFVirtualDeadlines, rt.FixedPriority}).Draw(t, "policy"),
	}
}

// fill draws servers and keeps those that the core admits.
func fill(t *rapid.T, core rt.Core, most int) rt.Load {
	load := rt.Load{Core: core}
	for i := range rapid.IntRange(0, most).Draw(t, "servers") {
		if s := drawServer(t, fmt.Sprintf("c%d-%d", core.ID, i)); rt.Admit(core, load.Servers, s).Admitted {
			load.Servers = append(load.Servers, s)
		}
	}
	return load
}

// Against every subset: strictly lower, the fewest, the least critical, the smallest.
func TestVictimsAreTheCheapest(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		load := fill(t, drawRTCore(t, 0), 9)
		s := drawServer(t, "s")
		victims, ok := rt.Victims(load, s)
		want, possible := cheapest(load, s)
		if ok != possible || !slices.Equal(ids(victims), ids(want)) {
			t.Fatalf("victims %v, %v; want %v, %v\nof %+v\nfor %+v", ids(victims), ok, ids(want), possible, load, s)
		}
		if len(victims) > 0 {
			found++
		}
	})
	if found == 0 {
		t.Error("nothing was ever displaced")
	}
}

// cheapest looks at all subsets, by definition.
func cheapest(load rt.Load, s rt.Server) (best []rt.Server, ok bool) {
	for mask := range 1 << len(load.Servers) {
		var gone, rest []rt.Server
		lower := true
		for i, o := range load.Servers {
			if mask&(1<<i) == 0 {
				rest = append(rest, o)
				continue
			}
			gone = append(gone, o)
			lower = lower && o.Criticality < s.Criticality
		}
		if lower && rt.Admit(load.Core, rest, s).Admitted && (!ok || compare(gone, best, load.Granularity) < 0) {
			best, ok = gone, true
		}
	}
	return best, ok
}

func compare(a, b []rt.Server, granularity int64) int {
	return cmp.Or(
		cmp.Compare(len(a), len(b)),
		cmp.Compare(count(a, rt.High), count(b, rt.High)), cmp.Compare(count(a, rt.Middle), count(b, rt.Middle)),
		cmp.Compare(total(a, granularity), total(b, granularity)), slices.Compare(ids(a), ids(b)))
}

func count(servers []rt.Server, c rt.Criticality) int {
	n := 0
	for _, s := range servers {
		if s.Criticality == c {
			n++
		}
	}
	return n
}

func total(servers []rt.Server, granularity int64) rt.PPM {
	sum := rt.PPM(0)
	for _, s := range servers {
		sum += s.Charge(granularity)
	}
	return sum
}

// Beyond 12 candidates, under EDF: enough, all of them needed, and as few and as little critical as can be.
func TestVictimsOfManyAreFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := rt.Load{Core: rt.Core{Capacity: 900_000}}
		for i := range rapid.IntRange(13, 40).Draw(t, "servers") {
			c := rt.Criticality(rapid.IntRange(0, 1).Draw(t, "criticality"))
			budget := rapid.Int64Range(1, 90).Draw(t, "budget")
			load.Servers = append(load.Servers, rt.Server{ID: fmt.Sprintf("s%02d", i), Criticality: c, Period: 1000, Low: budget, High: budget})
		}
		s := percent("s", rt.High, 30, rapid.Int64Range(31, 90).Draw(t, "need"))
		victims, ok := rt.Victims(load, s)
		if !ok {
			t.Fatal("all candidates may go")
		}
		rest := slices.DeleteFunc(slices.Clone(load.Servers), func(o rt.Server) bool { return slices.Contains(ids(victims), o.ID) })
		if !rt.Admit(load.Core, rest, s).Admitted {
			t.Fatal("the victims are not enough")
		}
		number, middles := fewest(load, s)
		if len(victims) != number || count(victims, rt.Middle) != middles {
			t.Fatalf("%d victims, %d of them Middle; %d and %d would do", len(victims), count(victims, rt.Middle), number, middles)
		}
	})
}

// fewest is how many must go, and how few of them need be Middle: the largest of each are the best.
func fewest(load rt.Load, s rt.Server) (number, middles int) {
	missing := total(load.Servers, 0) + s.Charge(0) - load.Capacity
	largest := func(c ...rt.Criticality) []rt.Server {
		some := slices.DeleteFunc(slices.Clone(load.Servers), func(o rt.Server) bool { return !slices.Contains(c, o.Criticality) })
		slices.SortFunc(some, func(a, b rt.Server) int { return cmp.Compare(b.Low, a.Low) })
		return some
	}
	all := largest(rt.Low, rt.Middle)
	for total(all[:number], 0) < missing {
		number++
	}
	lows, mids := largest(rt.Low), largest(rt.Middle)
	for middles = 0; ; middles++ {
		if n := number - middles; n <= len(lows) && total(lows[:n], 0)+total(mids[:middles], 0) >= missing {
			return number, middles
		}
	}
}
