package rules

import (
	"math/bits"
	"time"
)

// keep reserves the budgets of an action that waits until the world allows more, against those after it in the order: of what
// comes back a little at a time they would leave nothing. What such an action waits for may never come. So it keeps the budgets
// for its first step of age, and from then on in turns. The action that stands k-th of those that wait for a budget gives way
// in every 2^(k+1)-th step of time, and all before it do so then, too. So each has steps in which no action before it keeps
// what it waits for, and then it keeps that from every action after it. An action that waits for nothing has steps in which no
// action keeps anything.
func (b books) keep(a Action, o Options, now time.Time) {
	var budgets []Use
	rank := 0
	for _, u := range a.Uses {
		if u.Resource.budget() {
			budgets = append(budgets, u)
			rank = max(rank, b.hoping[u.Key])
		}
	}
	for _, u := range budgets {
		b.hoping[u.Key] = rank + 1
	}
	if now.Sub(a.Since) < o.ageStep() || rank >= giving(o, now) {
		a.Uses = budgets
		b.reserved.take(a)
	}
}

// giving is how many of those that wait for a budget keep nothing at a time: none in every other step, one in every fourth, two in every
// eighth.
func giving(o Options, now time.Time) int {
	return bits.TrailingZeros64(uint64(now.UnixNano() / int64(o.ageStep())))
}
