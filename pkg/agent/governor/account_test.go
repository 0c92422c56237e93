package governor

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// history is the account as one would write it without bounds: what was promised at every instant.
type history struct {
	at    []int64
	sum   []rt.PPM
	holds []hold
}

func (h *history) now() rt.PPM {
	if len(h.sum) == 0 {
		return 0
	}
	return h.sum[len(h.sum)-1]
}

func (h *history) set(at int64, sum rt.PPM) { h.at, h.sum = append(h.at, at), append(h.sum, sum) }

func (h *history) advance(now int64) {
	for {
		first := -1
		for i, x := range h.holds {
			if x.until <= now && (first < 0 || x.until < h.holds[first].until) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		h.set(h.holds[first].until, h.now()-h.holds[first].amount)
		h.holds = append(h.holds[:first], h.holds[first+1:]...)
	}
}

// raise counts from a release on: that instant begins an entry of its own.
func (h *history) raise(since int64, amount rt.PPM) {
	i := len(h.at)
	for i > 0 && h.at[i-1] > since {
		i--
	}
	before := rt.PPM(0)
	if i > 0 {
		before = h.sum[i-1]
	}
	h.at = append(h.at[:i], append([]int64{since}, h.at[i:]...)...)
	h.sum = append(h.sum[:i], append([]rt.PPM{before}, h.sum[i:]...)...)
	for j := i; j < len(h.sum); j++ {
		h.sum[j] += amount
	}
}

func (h *history) most(since int64) rt.PPM {
	most := rt.PPM(0)
	for i := range h.at {
		if i+1 == len(h.at) || h.at[i+1] > since {
			most = max(most, h.sum[i])
		}
	}
	return most
}

// The account is exact as long as its rings hold everything, and never says less than there is when they do not.
func TestTheAccountIsExactOrSaysMore(t *testing.T) {
	for name, exact := range map[string]bool{"exact": true, "overflowing": false} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var a account
				h, now := &history{}, int64(1000)
				steps, longest, back := 40, int64(30), int64(60)
				if !exact {
					steps, back = 250, 2000
					longest = rapid.SampledFrom([]int64{50, 5000}).Draw(t, "longest")
				}
				for range steps {
					now += rapid.Int64Range(0, 5).Draw(t, "ns")
					a.advance(now)
					h.advance(now)
					amount := rt.PPM(rapid.Int64Range(1, 100).Draw(t, "ppm"))
					if rapid.IntRange(0, 2).Draw(t, "raise") == 0 {
						since := now - rapid.Int64Range(0, 40).Draw(t, "ago")
						a.add(1, amount, since)
						h.raise(since, amount)
					} else if free := a.sum - a.held; free > 0 {
						amount = min(amount, free)
						until := now + rapid.Int64Range(0, longest).Draw(t, "until")
						a.letGo(2, amount, until)
						h.holds = append(h.holds, hold{until: until, amount: amount})
					}
					since := now - rapid.Int64Range(0, back).Draw(t, "since")
					got, want := a.most(since), h.most(since)
					if got < want || exact && got != want {
						t.Fatalf("%d ppm since %d, want %d", got, since, want)
					}
				}
			})
		})
	}
}

func TestOldStepsAreForgotten(t *testing.T) {
	var a account
	a.add(1, 100, 0)
	a.letGo(1, 60, 10)
	a.advance(10)
	if a.most(9) != 100 || a.most(10) != 40 || a.nStep != 1 {
		t.Errorf("%d, %d ppm, %d steps", a.most(9), a.most(10), a.nStep)
	}
	a.letGo(1, 20, 30)
	a.advance(30)
	a.advance(10 + longest)
	if a.most(20) != 40 || a.nStep != 1 {
		t.Errorf("%d ppm, %d steps", a.most(20), a.nStep)
	}
	a.advance(30 + longest)
	if a.most(0) != 20 || a.nStep != 0 {
		t.Errorf("%d ppm, %d steps", a.most(0), a.nStep)
	}
}

func TestPeriods(t *testing.T) {
	t.Parallel()
	var p periods
	for _, step := range []struct {
		release int64
		isNew   bool
		within  int // of the last 4
	}{{100, true, 1}, {100, false, 1}, {90, false, 1}, {110, true, 2}, {125, true, 2 + 1}, {170, true, 1}, {10_000, true, 1}} {
		if got := p.count(step.release, 10); got != step.isNew || p.within(4) != step.within {
			t.Errorf("released at %d: new %v, %d of 4; want %v, %d", step.release, got, p.within(4), step.isNew, step.within)
		}
	}
	p.forget()
	if p.within(64) != 0 || !p.count(10_000, 10) || p.within(1) != 1 {
		t.Error("the period under way counts again after it was forgotten")
	}
}

// Holds beyond the bound are merged into the one that ends last: nothing is free too soon.
func TestHoldsThatOverflowAreFreeLater(t *testing.T) {
	var a account
	a.add(1, 1000, 0)
	for i := range int64(maxHolds) {
		a.letGo(7, 1, 100+(i+7)%maxHolds) // the last to end is neither the first nor the last to come
	}
	a.letGo(7, 100, 90)
	a.letGo(7, 200, 500)
	if a.reclaim(8, 5) != 0 || a.reclaim(7, 1) != 1 || a.held != maxHolds+299 {
		t.Errorf("%d ppm are held after one was taken back", a.held)
	}
	a.letGo(7, 1, 500)
	if a.held != maxHolds+300 || a.owns(7) != maxHolds-1 {
		t.Errorf("%d ppm are held, %d ppm of them can be taken back", a.held, a.owns(7))
	}
	for _, step := range []struct {
		at  int64
		sum rt.PPM
	}{{99, 1000}, {100, 999}, {162, 1000 - maxHolds + 2}, {499, 1000 - maxHolds + 2}, {500, 1000 - maxHolds - 300}} {
		if a.advance(step.at); a.sum != step.sum {
			t.Errorf("at %d: %d ppm, want %d", step.at, a.sum, step.sum)
		}
	}
}

// The assertion after every grant, which nothing else in this package can violate.
func TestAGrantBeyondThePlanIsCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit  rt.PPM
		raised int
		broken uint64
	}{"within": {300_000, 1, 0}, "too much bandwidth": {299_999, 1, 1}, "windows are no bound": {300_000, 0, 0}} {
		c := New(Options{})
		c.limit, c.maxRaised = test.limit, test.raised
		s := &server{serial: 1, windowUs: 10_000, budget: 3000}
		s.PeriodUs, s.DeadlineUs, s.LowUs, s.Limited = 10_000, 10_000, 2000, true
		c.granted(s, 0)
		if c.Broken() != test.broken {
			t.Errorf("%s: broken %d times, want %d", name, c.Broken(), test.broken)
		}
		second := &server{serial: 2, windowUs: 10_000}
		second.Limited = true
		second.PeriodUs, second.budget = 10_000, 1
		c.limit = 900_000
		c.granted(second, 0)
		if want := test.broken + uint64(test.raised); c.Broken() != want {
			t.Errorf("%s: two in one window: broken %d times, want %d", name, c.Broken(), want)
		}
	}
}
