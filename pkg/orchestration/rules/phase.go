package rules

import (
	"fmt"
	"slices"
	"time"
)

// Result is what a step of an action came to.
type Result struct {
	// Outcome ends the action: Succeeded, Failed, or, once it is being undone, RolledBack. Empty: there is more
	// to do.
	Outcome Phase
	// Undo is set when the rest cannot be done: what was done is to be undone.
	Undo bool
	// Spent is what the world itself accounts for by now, such as a PodDisruptionBudget after the eviction.
	Spent []Key
	// Later are the entries of the progress that need not be stored by themselves, as they are for now: a process that does not
	// know them takes the step again, and finds the same. They are stored with what comes next.
	Later []string
	// Message says in words what is being waited for, or what the outcome is.
	Message string
}

// Start begins a waiting action. One that no longer waits, or is no longer wanted, stays as it is.
func (a Action) Start(now time.Time) Action {
	if a.Phase != Waiting || a.Unwanted {
		return a
	}
	return a.enter(Running, "", now)
}

// Refuse ends a waiting action for good.
func (a Action) Refuse(message string, now time.Time) Action {
	if a.Phase != Waiting {
		return a
	}
	return a.enter(Refused, message, now)
}

// Withdraw says that the action is not wanted any longer. What has begun is undone.
func (a Action) Withdraw(why string, now time.Time) Action {
	if a.Phase.Over() {
		return a
	}
	a.Unwanted = true
	switch a.Phase {
	case Waiting:
		return a.enter(Withdrawn, why, now)
	case Running:
		return a.enter(RollingBack, why, now)
	}
	return a
}

// Tick ends a phase whose time is over.
func (a Action) Tick(now time.Time) Action {
	deadline, ok := a.Deadline()
	if !ok || now.Before(deadline) {
		return a
	}
	switch a.Phase {
	case Waiting:
		return a.enter(Expired, because(fmt.Sprintf("It could not begin until %s", deadline.UTC().Format(time.RFC3339)), a.Message), now)
	case Running:
		return a.enter(RollingBack, because(fmt.Sprintf("It took longer than %s", a.Limit), a.Message), now)
	}
	return a.enter(Failed, because(fmt.Sprintf("It could not be undone within %s", a.limit()), a.Message), now)
}

// Report takes the result of a step in. Results for an action that holds nothing are void, and so is success
// of undoing what is not being undone.
func (a Action) Report(r Result, now time.Time) Action {
	if !a.Phase.Holds() {
		return a
	}
	if len(r.Spent) > 0 {
		a.Uses = slices.DeleteFunc(slices.Clone(a.Uses), func(u Use) bool { return slices.Contains(r.Spent, u.Key) })
	}
	switch {
	case r.Outcome == Succeeded || r.Outcome == Failed:
		return a.enter(r.Outcome, r.Message, now)
	case r.Outcome == RolledBack && a.Phase == RollingBack:
		return a.enter(RolledBack, because(a.Message, r.Message), now)
	case r.Undo && a.Phase == Running:
		return a.enter(RollingBack, r.Message, now)
	case a.Phase == Running:
		a.Message = r.Message
	}
	return a
}

func (a Action) enter(p Phase, message string, now time.Time) Action {
	a.Phase, a.Entered, a.Message = p, now, message
	return a
}

// because joins what happened and its reason; either may be empty.
func because(what, why string) string {
	switch {
	case why == "":
		return what
	case what == "":
		return why
	}
	return what + ": " + why
}
