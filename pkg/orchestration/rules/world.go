package rules

import "fmt"

// World is what is known about things outside of the queue.
type World struct {
	// Capacity is how much there is of something: of pods, nodes and limits all of it, of disruption budgets what
	// they still allow.
	Capacity func(Key) int
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

func withheld(r Resource) string {
	switch r {
	case PodBudget:
		return ReasonDisruptionBudget
	case PoolBudget:
		return ReasonPoolBudget
	}
	return ReasonLimit
}
