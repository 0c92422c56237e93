package observe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/events"
)

// silent are reasons of events that repeat what conditions of the NodeClaim already told, or that concern no user.
var silent = map[string]bool{
	"Nominated": true, "DisruptionTerminating": true, "DisruptionLaunching": true, "DisruptionWaitingReadiness": true,
	"Evicted": true, "Launched": true, "Registered": true, "Initialized": true,
	"DisruptionReason": true, "Disrupted": true, "ConsistentStateFound": true,
}

// scheduler is the component whose complaints about pending pods are left out: the pods are counted anyway.
const scheduler = "default-scheduler"

// watched are the kinds of objects whose events are told.
var watched = map[string]bool{"NodeClaim": true, "Node": true, "NodePool": true, "SimulatedFault": true, "McKube": true, "RTNode": true}

// kinds sorts the reasons whose kind their type does not tell.
var kinds = map[string]Kind{
	"DisruptionBlocked": Blocked, "Unconsolidatable": Blocked, "ConsolidationRejected": Blocked, "NodeRepairBlocked": Blocked,
	"ConsolidationCandidate": Planned, "ConsolidationApproved": Planned,
	"FailedDraining": Blocked, "TerminationGracePeriodExpiring": Blocked,
	events.ReasonPlaced: Placed, events.ReasonMoved: Placed, events.ReasonAdopted: Placed, events.ReasonReleased: Placed,
	events.ReasonEscalated: Budget, events.ReasonRecovered: Budget, events.ReasonPressure: Budget, events.ReasonPressureOver: Budget,
	events.ReasonPressureBegan: Trouble, events.ReasonPressureReturned: Trouble, events.ReasonPressureAnswered: Planned,
	events.ReasonPressureUnanswered: Blocked, events.ReasonPressureEased: Budget, events.ReasonPressureGivenBack: Budget, events.ReasonPressureEnded: Budget,
	events.ReasonRefused: Blocked, events.ReasonPreemptionWaits: Blocked, events.ReasonPreempting: Planned,
}

// realtime are the reasons of Events about pods that are told: those of real-time work.
var realtime = map[string]bool{
	events.ReasonPlaced: true, events.ReasonMoved: true, events.ReasonAdopted: true, events.ReasonReleased: true, events.ReasonEscalated: true,
	events.ReasonRecovered: true, events.ReasonRefused: true, events.ReasonPreempting: true, events.ReasonPreempted: true, events.ReasonPreemptionWaits: true,
}

// pressure are the reasons of Events that are about a node, and repeated on everybody whom it concerns.
var pressure = map[string]bool{
	events.ReasonPressureBegan: true, events.ReasonPressureReturned: true, events.ReasonPressureAnswered: true, events.ReasonPressureUnanswered: true,
	events.ReasonPressureEased: true, events.ReasonPressureGivenBack: true, events.ReasonPressureEnded: true,
}

// passing are beginnings of messages about states that every node passes through, which no user needs to know.
var passing = []string{
	"Node is nominated", "Nodeclaim does not have an associated node", "NodeClaim does not have an associated node",
	"Node isn't initialized", "Node is deleting",
}

// fromEvent turns an Event into a decision; ok is false for events that tell nothing new to a user.
func fromEvent(e *corev1.Event) (d Decision, ok bool) {
	if silent[e.Reason] || !tells(e) {
		return Decision{}, false
	}
	kind, known := kinds[e.Reason]
	switch {
	case known:
	case e.Type == corev1.EventTypeWarning:
		kind = Trouble
	default:
		return Decision{}, false
	}
	message := strings.TrimSuffix(strings.Join(strings.Fields(e.Message), " "), ".")
	if slices.ContainsFunc(passing, func(begin string) bool { return strings.HasPrefix(message, begin) }) {
		return Decision{}, false
	}
	d = Decision{At: eventTime(e), Kind: kind, Node: e.InvolvedObject.Name, Text: strings.Replace(message, "Failed to drain node,", "draining:", 1), Count: 1}
	if e.InvolvedObject.Kind == "NodePool" {
		d.Node, d.Pool = "", e.InvolvedObject.Name
	}
	if e.InvolvedObject.Kind == "Pod" || e.InvolvedObject.Kind == "McKube" {
		d.Node = "" // the text names the pod
	}
	if found := candidate.FindStringSubmatch(message); found != nil {
		// One command is told of each of its nodes; without the node they are one decision.
		d.Node, d.Text = "", fmt.Sprintf("consolidation found: to %s %s node(s) saves $%s/h", found[1], found[2], found[3])
	}
	return d, true
}

// candidate matches what Karpenter says of each node of a consolidation command.
var candidate = regexp.MustCompile(`^Consolidation candidate: (\w+).*\(part of (\d+)-node consolidation\) \(savings: \$([0-9.]+)\)`)

func tells(e *corev1.Event) bool {
	if e.InvolvedObject.Kind == "Pod" && realtime[e.Reason] {
		return true
	}
	if e.InvolvedObject.Kind == "Pod" {
		return e.Reason == "FailedScheduling" && e.Source.Component != scheduler && e.ReportingController != scheduler
	}
	if e.InvolvedObject.Kind == "McKube" && pressure[e.Reason] {
		return false // its node tells it
	}
	return watched[e.InvolvedObject.Kind]
}

func eventTime(e *corev1.Event) time.Time {
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}
