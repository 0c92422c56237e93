package state

import mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"

// Escalated tells whether the container has a raised budget: a controller that moved it now would do so at its worst moment. A
// container that has its high budget all the time is never escalated.
func (s *ServerView) Escalated() bool {
	return s.Applied != nil && s.Spec != nil && s.Spec.Mode != string(mcv1.EscalationReserved) && s.Applied.BudgetUs > s.Spec.BudgetLowUs
}
