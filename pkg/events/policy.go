package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// ReasonPolicyViolated is the reason of the Event that says that a CostPolicy or PowerPolicy is exceeded.
const ReasonPolicyViolated = "PolicyViolated"

// PolicyViolated tells that a limit or a threshold of a policy has come to be exceeded. field is its name, action is
// what the alert asks for; empty for limits.
func PolicyViolated(policy runtime.Object, field, violation, severity, action string) Event {
	message := fmt.Sprintf("%s (%s)", violation, severity)
	if action != "" && action != "notify" {
		message += fmt.Sprintf(". Action %s is not carried out: this Event is all that is done", action)
	}
	return warning(policy, ReasonPolicyViolated, message, key(policy), field)
}
