package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reasons for which an action waits. The same words are in its record, Events and metrics.
const (
	// ReasonInUse: another action has something that this one uses.
	ReasonInUse = "InUse"
	// ReasonTurn: another action comes before this one and waits for something that both use.
	ReasonTurn = "NotItsTurn"
	// ReasonDisruptionBudget: a PodDisruptionBudget allows no more now.
	ReasonDisruptionBudget = "PodDisruptionBudget"
	// ReasonPoolBudget: the NodePool's disruption budget allows no more now.
	ReasonPoolBudget = "NodePoolBudget"
	// ReasonLimit: a limit is so low that the action never fits.
	ReasonLimit = "Limit"
	// ReasonMoved: a pod was moved for this cause already.
	ReasonMoved = "MovedAlready"
)

// Options of the order.
type Options struct {
	// AgeStep is after what wait an action counts as one class more critical. For as long budgets are kept, and not kept, in turns. 0: ten
	// minutes.
	AgeStep time.Duration
}

const defaultAgeStep = 10 * time.Minute

func (o Options) ageStep() time.Duration {
	if o.AgeStep <= 0 {
		return defaultAgeStep
	}
	return o.AgeStep
}

// Verdict is what Decide says about a waiting action.
type Verdict struct {
	ID string
	// Start it, or Refuse it for good. Otherwise it waits. Reason is why it does not start, a word, and
	// Message the same in words.
	Start, Refuse   bool
	Reason, Message string
	// Blockers are the actions that it waits for.
	Blockers []string
}

// Decide judges the waiting actions, in their order. What it starts is taken into account for those that
// follow. It changes nothing: the same arguments give the same answer.
func Decide(actions []Action, w World, o Options, now time.Time) []Verdict {
	b := books{used: account{}, reserved: account{}, moved: past{}, moving: past{}, hoping: map[Key]int{}}
	var waiting []Action
	for _, a := range actions {
		switch {
		case a.Phase == Waiting:
			waiting = append(waiting, a)
		case a.Phase.Holds():
			b.begin(a)
		case a.moved():
			b.moved.note(a)
		}
	}
	Order(waiting, o, now)
	out := make([]Verdict, 0, len(waiting))
	for _, a := range waiting {
		v := b.judge(a, w)
		switch {
		case v.Start:
			b.begin(a)
		case len(v.Blockers) > 0:
			b.reserved.take(a)
		case !v.Refuse && w.mayAllow(a):
			b.keep(a, o, now)
		}
		out = append(out, v)
	}
	return out
}

// books are what the actions have and want, as far as they were gone through.
type books struct {
	used, reserved account
	// moved is what was moved, or may have been, and moving what those that run move.
	moved, moving past
	// hoping is how many actions wait for what a budget may come to allow.
	hoping map[Key]int
}

// begin books what an action that runs has, and moves.
func (b books) begin(a Action) {
	b.used.take(a)
	b.moving.note(a)
}

// past is what actions move, by pod and cause.
type past map[matter][]made

// matter is a pod and what it is moved for.
type matter struct{ cause, pod string }

// made is a move, and the action that makes it.
type made struct {
	Move
	by string
}

func (p past) note(a Action) {
	for _, m := range a.Moves {
		key := matter{a.Cause, m.Pod}
		p[key] = append(p[key], made{m, a.ID})
	}
}

// repeats finds a move of an action that was made for its cause already, and which action made it.
func (p past) repeats(a Action) (m Move, by string, ok bool) {
	for _, m := range a.Moves {
		for _, o := range p[matter{a.Cause, m.Pod}] {
			if m.again(o.Move) {
				return m, o.by, true
			}
		}
	}
	return Move{}, "", false
}

// moved tells whether an action that is over has moved what it names, or may have. A pod that a preemption has evicted is gone
// for good: a pod that is still there, so that anything may be asked of it, was not evicted. The preemption may have succeeded
// without it, as the room was there before.
func (a Action) moved() bool { return a.Kind != Preempt && (a.Phase == Succeeded || a.Phase == Failed) }

// Order sorts actions by class, then by rung, then by age: the order in which they are judged.
func Order(waiting []Action, o Options, now time.Time) {
	slices.SortFunc(waiting, func(a, b Action) int {
		return cmp.Or(
			cmp.Compare(b.class(o, now), a.class(o, now)),
			cmp.Compare(a.Kind.Rung(), b.Kind.Rung()),
			a.Since.Compare(b.Since),
			strings.Compare(a.ID, b.ID),
		)
	})
}

// class is the action's criticality, one more for every step of its age.
func (a Action) class(o Options, now time.Time) int64 {
	return int64(a.Criticality) + int64(max(0, now.Sub(a.Since))/o.ageStep())
}

// judge tells whether one action may start, beside what is used and what those before it have reserved.
func (b books) judge(a Action, w World) Verdict {
	if m, by, ok := b.moved.repeats(a); ok {
		return Verdict{ID: a.ID, Refuse: true, Reason: ReasonMoved, Message: fmt.Sprintf("pod %s was moved for %s already, by %s", m.Pod, a.Cause, by)}
	}
	if m, by, ok := b.moving.repeats(a); ok {
		return blocked(a.ID, ReasonInUse, Use{Key: Key{Resource: Pod, Name: m.Pod}}, []string{by})
	}
	if reason, message := w.withholds(a); reason != "" {
		return Verdict{ID: a.ID, Reason: reason, Message: message}
	}
	for _, u := range a.Uses {
		if !b.used.has(u, w.Capacity(u.Key)) {
			return blocked(a.ID, ReasonInUse, u, b.used[u.Key].by)
		}
	}
	for _, u := range a.Uses {
		if !b.leaves(u, w.Capacity(u.Key)) {
			return blocked(a.ID, ReasonTurn, u, b.reserved[u.Key].by)
		}
	}
	return Verdict{ID: a.ID, Start: true}
}

// leaves tells whether the use leaves what is reserved where it is.
func (b books) leaves(u Use, capacity int) bool {
	used, reserved := b.used[u.Key], b.reserved[u.Key]
	if len(reserved.by) == 0 {
		return true
	}
	return u.Amount != All && !used.all && !reserved.all && used.amount+reserved.amount+u.Amount <= capacity
}

// named is how many blockers a message names. More are told by their number only: what a crowd waits for must neither
// take a page for each to tell nor change whenever one of them ends.
const named = 3

func blocked(id, reason string, u Use, by []string) Verdict {
	return Verdict{ID: id, Reason: reason, Blockers: slices.Clip(by), Message: u.String() + " " + occupied(reason, by)}
}

// occupied says which actions use something, or for which actions it is kept.
func occupied(reason string, by []string) string {
	names := strings.Join(by[:min(named, len(by))], ", ")
	switch kept := reason == ReasonTurn; {
	case kept && len(by) > named:
		return "is kept for those that come before"
	case kept:
		return "is kept for " + names
	case len(by) > named:
		return fmt.Sprintf("is used by %d actions", len(by))
	}
	return "is used by " + names
}
