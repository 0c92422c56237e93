package rules

import "fmt"

// World is what is known about things outside of the queue.
type World struct {
	// Capacity is how much there is of something: of pods, nodes and limits all of it, of disruption budgets what
	// they still allow.
	Capacity func(Key) int
	// Most is what a disruption budget allows with all that it protects in good order. Not known: there is no telling. nil: of none it is.
	Most func(Key) (most int, known bool)
	// Veto forbids an action for now: a reason, one PascalCase word, and a message. Empty: none does. nil: never.
	Veto func(Action) (reason, message string)
}

// withholds is why the world does not let an action begin, whatever becomes of the others. Empty: it does.
func (w World) withholds(a Action) (reason, message string) {
	for _, u := range a.Uses {
		if have, need := w.Capacity(u.Key), max(1, u.Amount); have < need {
			return withheld(u.Resource), fmt.Sprintf("%s allows %d, %d needed", u.Key, max(0, have), need)
		}
	}
	if w.Veto == nil {
		return "", ""
	}
	return w.Veto(a)
}

// mayAllow tells whether it is by budgets alone that the world withholds something from an action, each of which may come to allow what it
// needs.
func (w World) mayAllow(a Action) bool {
	for _, u := range a.Uses {
		need := max(1, u.Amount)
		if w.Capacity(u.Key) >= need {
			continue
		}
		if !u.Resource.budget() {
			return false
		}
		if w.Most == nil {
			continue
		}
		if most, known := w.Most(u.Key); known && most < need {
			return false
		}
	}
	if w.Veto == nil {
		return true
	}
	reason, _ := w.Veto(a)
	return reason == ""
}

func withheld(r Resource) string {
	switch r {
	case PodBudget:
		return ReasonDisruptionBudget
	case PoolBudget:
		return ReasonPoolBudget
	}
	return ReasonLimit
}
