package state

import mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"

// Escalated tells whether the container has a raised budget: whoever moved it now would do so at its worst moment. One
// that is given its high budget all the time never is.
func (s *ServerView) Escalated() bool {
	return s.Applied != nil && s.Spec != nil && s.Spec.Mode != string(mcv1.EscalationReserved) && s.Applied.BudgetUs > s.Spec.BudgetLowUs
}
