package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events about actions of the orchestration queue.
const (
	ReasonActionWaits     = "ActionWaits"
	ReasonActionStarted   = "ActionStarted"
	ReasonActionRollsBack = "ActionRollsBack"
	ReasonActionFinished  = "ActionFinished"
)

// Action is one of the orchestration queue.
type Action struct {
	// Name of the RTAction; Kind of action; For whom, as "Pod web".
	Name, Kind, For string
	// Reason for which it is done, a word.
	Reason string
	// Phase it has come into; WaitingFor and Message say why.
	Phase, WaitingFor, Message string
}

func (a Action) title() string {
	return fmt.Sprintf("%s for %s (%s, action %s)", a.Kind, a.For, a.Reason, a.Name)
}

// because is the message after a colon.
func (a Action) because() string {
	if a.Message == "" {
		return ""
	}
	return ": " + a.Message
}

// ActionWaits tells the beneficiary what an action for it waits for.
func ActionWaits(beneficiary runtime.Object, a Action) Event {
	return normal(beneficiary, ReasonActionWaits, fmt.Sprintf("%s waits for %s%s", a.title(), a.WaitingFor, a.because()), a.Name, a.WaitingFor)
}

// ActionStarted tells the beneficiary and the targets that an action has begun.
func ActionStarted(on []runtime.Object, a Action) []Event {
	return a.each(on, ReasonActionStarted, a.title()+" has begun")
}

// ActionRollsBack tells that an action is being undone.
func ActionRollsBack(on []runtime.Object, a Action) []Event {
	return a.each(on, ReasonActionRollsBack, a.title()+" is being undone"+a.because())
}

// ActionFinished tells what became of an action.
func ActionFinished(on []runtime.Object, a Action) []Event {
	return a.each(on, ReasonActionFinished, fmt.Sprintf("%s: %s%s", a.title(), a.Phase, a.because()))
}

func (a Action) each(on []runtime.Object, reason, message string) []Event {
	made := normal
	if a.Phase == "Failed" || a.Phase == "RollingBack" {
		made = warning
	}
	var out []Event
	for _, o := range on {
		out = append(out, made(o, reason, message, a.Name, a.Phase, fmt.Sprintf("%T", o), key(o)))
	}
	return out
}

// key tells the objects of one action apart.
func key(o runtime.Object) string {
	if named, ok := o.(interface {
		GetNamespace() string
		GetName() string
	}); ok {
		return named.GetNamespace() + "/" + named.GetName()
	}
	return ""
}
