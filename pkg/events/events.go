// Package events are the Kubernetes Events that Mainspring leaves about real-time work: one constructor for each,
// pure, with the values that make two of them the same. Reasons that are also those of a condition
// or a metric label are the same word there.
package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events.
const (
	ReasonPlaced             = "Placed"
	ReasonRefused            = "NotAdmitted"
	ReasonMoved              = "Moved"
	ReasonMoveRefused        = "MoveRefused"
	ReasonMadeRoom           = "MadeRoom"
	ReasonAdopted            = "Adopted"
	ReasonReleased           = "Released"
	ReasonBudgetKept         = "BudgetKept"
	ReasonConflict           = "Conflict"
	ReasonEscalated          = "Escalated"
	ReasonRecovered          = "Recovered"
	ReasonPressure           = "CPUPressure"
	ReasonPressureOver       = "CPUPressureOver"
	ReasonAgentSilent        = "AgentSilent"
	ReasonAgentAlive         = "AgentAlive"
	ReasonPreempting         = "Preempting"
	ReasonPreempted          = "Preempted"
	ReasonPreemptionWaits    = "PreemptionWaits"
	ReasonPreemptionFinished = "PreemptionFinished"
)

// Event is what to record on which object. Two Events with equal Reason and Dedupe soon after each
// other are one. Without Dedupe each is recorded: Kubernetes counts up those of one message, and bounds how many an object has.
type Event struct {
	// Object that the Event is about.
	Object runtime.Object
	// Type is corev1.EventTypeNormal or EventTypeWarning.
	Type string
	// Reason is one PascalCase word.
	Reason string
	// Message for people.
	Message string
	// Dedupe are the values that make the Event what it is, beside its reason.
	Dedupe []string
}

// Where is a container on a core.
type Where struct {
	// Pod as namespace/name, and its container.
	Pod, Container string
	// Node and Core it is on.
	Node string
	Core int
}

// String is "container app of pod default/web on core 2 of node edge-1".
func (w Where) String() string {
	return fmt.Sprintf("container %s of pod %s on core %d of node %s", w.Container, w.Pod, w.Core, w.Node)
}

func (w Where) key() string { return fmt.Sprintf("%s/%s@%s:%d", w.Pod, w.Container, w.Node, w.Core) }

// Placed tells that a container got its core, by which admission test.
func Placed(on runtime.Object, uid string, w Where, test string) Event {
	return normal(on, ReasonPlaced, fmt.Sprintf("Placed %s, admitted by %s", w, test), uid, w.key())
}

// Moved tells that a container goes from another core of the node to the one given, and why.
func Moved(on runtime.Object, uid string, w Where, from int, why string) Event {
	return normal(on, ReasonMoved, fmt.Sprintf("Moved from core %d: %s; %s", from, w, why), uid, w.key(), fmt.Sprint(from))
}

// MoveRefused tells that an action could not move a container from where it is, and which core does not take what.
func MoveRefused(on runtime.Object, uid string, w Where, action, why string) Event {
	return warning(on, ReasonMoveRefused, fmt.Sprintf("Stays, though action %s asks to move it: %s; %s", action, w, why), uid, w.Container, action)
}

// MadeRoom tells for whom another container was moved, to where, and from which core.
func MadeRoom(on runtime.Object, uid string, moved Where, from int) Event {
	return normal(on, ReasonMadeRoom, fmt.Sprintf("Made room on core %d by moving %s", from, moved), uid, moved.key(), fmt.Sprint(from))
}

// Refused tells that a container has no core: reason is that of the condition, message its numbers.
func Refused(on runtime.Object, uid, reason, message string) Event {
	return warning(on, ReasonRefused, reason+": "+message, uid, reason)
}

// Adopted tells that a container which ran before its McKube came was given a claim on a core.
func Adopted(on runtime.Object, uid string, w Where) Event {
	return normal(on, ReasonAdopted, fmt.Sprintf("Adopted %s", w), uid, w.key())
}

// Released tells that a container is an ordinary one again.
func Released(on runtime.Object, uid, mckube string) Event {
	return normal(on, ReasonReleased, fmt.Sprintf("McKube %s is being deleted; the container runs on without a real-time budget", mckube), uid, mckube)
}

// BudgetKept tells that new settings were refused and the old ones stay in force.
func BudgetKept(on runtime.Object, uid, message string) Event {
	return warning(on, ReasonBudgetKept, message, uid, message)
}

// Conflict tells that another McKube governs the container.
func Conflict(on runtime.Object, uid, governor string) Event {
	return warning(on, ReasonConflict, fmt.Sprintf("McKube %s, which is older, governs the container already; delete one of the two", governor), uid, governor)
}

// Escalated tells that a container's budget was raised to a level. Each raise counts.
func Escalated(on runtime.Object, w Where, level string) Event {
	return normal(on, ReasonEscalated, fmt.Sprintf("Raised to level %s: %s", level, w))
}

// Recovered tells that a container's budget is the low one again. Each time counts.
func Recovered(on runtime.Object, w Where) Event {
	return normal(on, ReasonRecovered, fmt.Sprintf("Back at level low: %s", w))
}

// Pressure tells that a node is busy and its real-time containers are raised as far as the plans allow.
func Pressure(node runtime.Object, uid string, raised int) Event {
	return warning(node, ReasonPressure, fmt.Sprintf("The node's CPU is busy; %d real-time containers are raised", raised), uid)
}

// PressureOver tells that the budgets raised for pressure are given back.
func PressureOver(node runtime.Object, uid string) Event {
	return normal(node, ReasonPressureOver, "The node's CPU is calm again; budgets raised for it are given back", uid)
}

// AgentSilent tells that a node's agent has not been heard of.
func AgentSilent(node runtime.Object, uid, message string) Event {
	return warning(node, ReasonAgentSilent, message, uid)
}

// AgentAlive tells that a node's agent is heard of again.
func AgentAlive(node runtime.Object, uid string) Event {
	return normal(node, ReasonAgentAlive, "The node's agent is heard of again", uid)
}

// Preempting tells a pending pod whose pods are evicted for it.
func Preempting(pod runtime.Object, uid, node string, victims []string) Event {
	return normal(pod, ReasonPreempting, fmt.Sprintf("Making room on node %s by evicting %s", node, strings.Join(victims, ", ")), uid, node)
}

// Preempted tells a pod, or its McKube, that it gives way to a more critical pod.
func Preempted(victim runtime.Object, uid, pod, criticality, node string) Event {
	return warning(victim, ReasonPreempted, fmt.Sprintf("Evicted from node %s for pod %s of criticality %s, which finds no core elsewhere", node, pod, criticality), uid, pod)
}

// PreemptionWaits tells a pending pod why its victims are still there.
func PreemptionWaits(pod runtime.Object, uid, victim, why string) Event {
	return warning(pod, ReasonPreemptionWaits, fmt.Sprintf("Pod %s may not be evicted yet: %s", victim, why), uid, victim)
}

// PreemptionFinished tells a pod how the attempt to make room for it ended.
func PreemptionFinished(pod runtime.Object, uid, outcome string) Event {
	return normal(pod, ReasonPreemptionFinished, outcome, uid, outcome)
}

func normal(on runtime.Object, reason, message string, dedupe ...string) Event {
	return Event{Object: on, Type: corev1.EventTypeNormal, Reason: reason, Message: message, Dedupe: dedupe}
}

func warning(on runtime.Object, reason, message string, dedupe ...string) Event {
	return Event{Object: on, Type: corev1.EventTypeWarning, Reason: reason, Message: message, Dedupe: dedupe}
}
