package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events that a node's agent tells. What the kernel does thousands of times a second is told
// as a number since the last Event of the kind.
const (
	ReasonPartiallyEscalated  = "PartiallyEscalated"
	ReasonEscalationDenied    = "EscalationDenied"
	ReasonEscalationRefused   = "EscalationRefused"
	ReasonOverrunAtHighBudget = "OverrunAtHighBudget"
	ReasonFaulted             = "Faulted"
	ReasonEscapesBudget       = "EscapesBudget"
	ReasonSqueezed            = "Squeezed"
	ReasonRestoredBudget      = "RestoredBudget"
	ReasonDeadlineMissed      = "DeadlineMissed"
	ReasonDrifted             = "Drifted"
	ReasonFastPathLost        = "FastPathLost"
	ReasonFastPathBack        = "FastPathBack"
	ReasonEventsLost          = "EventsLost"
)

// times is "once" or "n times".
func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// EscalatedOnNode tells how often an agent raised a container's budget by itself, and what it has now.
func EscalatedOnNode(on runtime.Object, uid string, w Where, n uint64, budgetUs int64) Event {
	return normal(on, ReasonEscalated, fmt.Sprintf("Raised %s, now %d us: %s", times(n), budgetUs, w), uid, w.Container)
}

// RecoveredOnNode tells how often an agent gave a raised budget back.
func RecoveredOnNode(on runtime.Object, uid string, w Where, n uint64, budgetUs int64) Event {
	return normal(on, ReasonRecovered, fmt.Sprintf("Gave its raised budget back %s, now %d us: %s", times(n), budgetUs, w), uid, w.Container)
}

// PartiallyEscalated tells that the core had less room than a raise asked for.
func PartiallyEscalated(on runtime.Object, uid string, w Where, n uint64, budgetUs int64) Event {
	return warning(on, ReasonPartiallyEscalated, fmt.Sprintf("Raised %s by less than asked for, now %d us, because the core has no more room: %s", times(n), budgetUs, w), uid, w.Container)
}

// EscalationDenied tells that raises found no room.
func EscalationDenied(on runtime.Object, uid string, w Where, n uint64) Event {
	return warning(on, ReasonEscalationDenied, fmt.Sprintf("Could not be raised %s, because the core's plan has no room: %s", times(n), w), uid, w.Container)
}

// EscalationRefused tells that the kernel refused raises that the plan has room for.
func EscalationRefused(on runtime.Object, uid string, w Where, n uint64) Event {
	return warning(on, ReasonEscalationRefused, fmt.Sprintf("The kernel refused to raise it %s; it is tried again: %s", times(n), w), uid, w.Container)
}

// OverrunAtHighBudget tells that a container used up even its highest budget.
func OverrunAtHighBudget(on runtime.Object, uid string, w Where, n uint64) Event {
	return warning(on, ReasonOverrunAtHighBudget, fmt.Sprintf("Used up its highest budget %s and was stopped for the rest of the period; runtime_hi is too low for what it does: %s", times(n), w), uid, w.Container)
}

// Faulted tells that a container used up its highest budget again and again.
func Faulted(on runtime.Object, uid string, w Where) Event {
	return warning(on, ReasonFaulted, fmt.Sprintf("Keeps using up its highest budget and counts as faulty; it stays within it: %s", w), uid, w.Container)
}

// EscapesBudget tells of what a container does that its budget does not hold, or that nobody sees.
func EscapesBudget(on runtime.Object, uid string, w Where, what string) Event {
	return warning(on, ReasonEscapesBudget, fmt.Sprintf("Is not governed as a whole: %s: %s", what, w), uid, w.Container)
}

// Squeezed tells that a container gives budget up for a more critical one, by the plan.
func Squeezed(on runtime.Object, uid string, w Where, n uint64, budgetUs int64) Event {
	return warning(on, ReasonSqueezed, fmt.Sprintf("Gave way to a more critical container %s, now %d us: %s", times(n), budgetUs, w), uid, w.Container)
}

// RestoredBudget tells that a squeezed container has its budget again.
func RestoredBudget(on runtime.Object, uid string, w Where, budgetUs int64) Event {
	return normal(on, ReasonRestoredBudget, fmt.Sprintf("Has its budget of %d us again: %s", budgetUs, w), uid, w.Container)
}

// DeadlineMissed tells how many jobs ended after their deadline.
func DeadlineMissed(on runtime.Object, uid string, w Where, n uint64) Event {
	return warning(on, ReasonDeadlineMissed, fmt.Sprintf("Missed its deadline %s: %s", times(n), w), uid, w.Container)
}

// Drifted tells that something else changed what was applied to a container.
func Drifted(on runtime.Object, uid string, w Where, n uint64) Event {
	return warning(on, ReasonDrifted, fmt.Sprintf("Something else changed its budget or core %s; it was set again: %s", times(n), w), uid, w.Container)
}

// FastPathLost tells that the process which governs the node does not answer.
func FastPathLost(node runtime.Object, uid, why string) Event {
	return warning(node, ReasonFastPathLost, "The fast path does not answer; budgets stay as they are: "+why, uid)
}

// FastPathBack tells that the process which governs the node answers again.
func FastPathBack(node runtime.Object, uid string) Event {
	return normal(node, ReasonFastPathBack, "The fast path answers again", uid)
}

// LostEvents tells that the kernel told more than could be read.
func LostEvents(node runtime.Object, uid string, n uint64) Event {
	return warning(node, ReasonEventsLost, fmt.Sprintf("%d events of the kernel's programs did not fit in the ring buffers; the next read-back finds the truth", n), uid)
}
