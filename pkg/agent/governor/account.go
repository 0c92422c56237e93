package governor

import "github.com/mainspring-rt/mainspring/pkg/rt"

// The account's bounds. What does not fit is merged so that more counts as promised than is.
const (
	maxHolds = 64
	maxSteps = 64
)

// longest is how far back a period under way may have been released, in nanoseconds.
const longest = rt.MaxPeriod * 1000

// hold is what its owner was promised until a deadline, though the owner has let go of it.
type hold struct {
	until  int64
	amount rt.PPM
	owner  uint64 // 0: of several
}

// step says that at most this was promised at an instant before until and after the step before.
type step struct {
	until int64
	most  rt.PPM
}

// account is what is promised on a core now, and the most that was promised since any release of a period that may
// still be under way. Its sum falls only when a hold ends; between two such instants it never falls, so
// the most of each step is what was promised at its end.
type account struct {
	now   int64
	sum   rt.PPM // holds included
	held  rt.PPM // sum of holds
	holds [maxHolds]hold
	steps [maxSteps]step // by until, ascending
	nHold int
	nStep int
}

// advance ends the holds that are over.
func (a *account) advance(now int64) {
	a.now = max(a.now, now)
	for range maxHolds {
		first := -1
		for i := range a.nHold {
			if a.holds[i].until <= a.now && (first < 0 || a.holds[i].until < a.holds[first].until) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		a.end(a.holds[first].until, a.holds[first].amount)
		a.drop(first)
	}
	for a.nStep > 0 && a.steps[0].until <= a.now-longest {
		a.nStep--
		copy(a.steps[:a.nStep], a.steps[1:])
	}
}

func (a *account) drop(i int) {
	a.held -= a.holds[i].amount
	a.nHold--
	a.holds[i] = a.holds[a.nHold]
}

// end takes from the sum what is free for periods released at or after an instant.
func (a *account) end(at int64, amount rt.PPM) {
	for a.nStep > 0 && a.steps[a.nStep-1].most <= a.sum {
		a.nStep--
	}
	if a.nStep == maxSteps {
		a.steps[1].most = max(a.steps[0].most, a.steps[1].most)
		a.nStep--
		copy(a.steps[:a.nStep], a.steps[1:])
	}
	if a.nStep == 0 || a.steps[a.nStep-1].until < at {
		a.steps[a.nStep] = step{until: at, most: a.sum}
		a.nStep++
	}
	a.sum -= amount
}

// most is the largest sum promised at any instant since a release.
func (a *account) most(since int64) rt.PPM {
	most := a.sum
	for i := a.nStep - 1; i >= 0 && a.steps[i].until > since; i-- {
		most = max(most, a.steps[i].most)
	}
	return most
}

// add promises more to a period released at since. What the owner let go of and still holds is its own and comes first.
func (a *account) add(owner uint64, amount rt.PPM, since int64) {
	amount -= a.reclaim(owner, amount)
	a.sum += amount
	for i := a.nStep - 1; i >= 0 && a.steps[i].until > since; i-- {
		a.steps[i].most += amount
	}
}

// owns is how much an owner has let go of that is still held.
func (a *account) owns(owner uint64) rt.PPM {
	total := rt.PPM(0)
	for i := range a.nHold {
		if a.holds[i].owner == owner {
			total += a.holds[i].amount
		}
	}
	return total
}

// reclaim takes back up to that much of what an owner holds.
func (a *account) reclaim(owner uint64, amount rt.PPM) rt.PPM {
	taken := rt.PPM(0)
	for i := a.nHold - 1; i >= 0 && taken < amount; i-- {
		h := &a.holds[i]
		if h.owner != owner {
			continue
		}
		part := min(h.amount, amount-taken)
		taken += part
		h.amount -= part
		a.held -= part
		if h.amount == 0 {
			a.drop(i)
		}
	}
	return taken
}

// letGo holds what an owner no longer uses until a deadline.
func (a *account) letGo(owner uint64, amount rt.PPM, until int64) {
	if amount <= 0 {
		return
	}
	a.held += amount
	if a.nHold == maxHolds {
		last := &a.holds[0]
		for i := range a.holds {
			if a.holds[i].until > last.until {
				last = &a.holds[i]
			}
		}
		last.amount, last.until, last.owner = last.amount+amount, max(last.until, until), 0
		return
	}
	a.holds[a.nHold] = hold{until: until, amount: amount, owner: owner}
	a.nHold++
}

// nextEnd is when the next hold ends; 0 when there is none.
func (a *account) nextEnd() int64 {
	at := int64(0)
	for i := range a.nHold {
		at = sooner(at, a.holds[i].until)
	}
	return at
}

// nextStep is when a step that covers a release at since ends; 0 when none does.
func (a *account) nextStep(since int64) int64 {
	for i := range a.nStep {
		if a.steps[i].until > since {
			return a.steps[i].until
		}
	}
	return 0
}

// sooner is the earlier of two times, of which 0 is never.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
