package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events about real-time pressure, in the order of an episode.
const (
	ReasonPressureBegan      = "PressureBegan"
	ReasonPressureAnswered   = "PressureAnswered"
	ReasonPressureUnanswered = "PressureUnanswered"
	ReasonPressureEased      = "PressureEased"
	ReasonPressureReturned   = "PressureReturned"
	ReasonPressureGivenBack  = "PressureGivenBack"
	ReasonPressureEnded      = "PressureEnded"
)

// PressureBegan tells that real-time work of a node suffers, from what, and who.
func PressureBegan(on runtime.Object, episode, node, source, message string) Event {
	return warning(on, ReasonPressureBegan, fmt.Sprintf("Node %s is under real-time pressure, %s: %s", node, source, message), episode, who(on))
}

// PressureReturned tells that the pressure has come back before everything was given back.
func PressureReturned(on runtime.Object, episode, node, message string) Event {
	return warning(on, ReasonPressureReturned, fmt.Sprintf("The real-time pressure of node %s has come back: %s", node, message), episode, who(on), message)
}

// PressureAnswered tells what is done about a pressure, and why nothing cheaper.
func PressureAnswered(on runtime.Object, action, kind string, rung int, message string) Event {
	return normal(on, ReasonPressureAnswered, fmt.Sprintf("%s, rung %d, action %s: %s", kind, rung, action, message), action, who(on))
}

// PressureUnanswered tells why nothing is done about a pressure.
func PressureUnanswered(on runtime.Object, episode, node, why string) Event {
	return warning(on, ReasonPressureUnanswered, fmt.Sprintf("No action would help against the real-time pressure of node %s: %s", node, why), episode, who(on), why)
}

// PressureEased tells that nobody suffers any longer.
func PressureEased(on runtime.Object, episode, node string) Event {
	return normal(on, ReasonPressureEased, fmt.Sprintf("Nobody on node %s suffers any longer; what was taken is given back step by step", node), episode, who(on))
}

// PressureGivenBack tells what is given back.
func PressureGivenBack(on runtime.Object, action, message string) Event {
	return normal(on, ReasonPressureGivenBack, fmt.Sprintf("Action %s: %s", action, message), action, who(on))
}

// PressureEnded tells that everything is as before.
func PressureEnded(on runtime.Object, episode, node string) Event {
	return normal(on, ReasonPressureEnded, fmt.Sprintf("The real-time pressure of node %s is over, and its taint is gone", node), episode, who(on))
}

// who tells the objects of one Event apart: a pod and its McKube may have the same name.
func who(on runtime.Object) string { return fmt.Sprintf("%T %s", on, key(on)) }
