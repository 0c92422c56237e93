package observe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind sorts decisions for colours and counts.
type Kind string

// The kinds of decisions.
const (
	Opened  Kind = "open"    // a machine was ordered
	Planned Kind = "plan"    // a change was found worth while
	Joined  Kind = "joined"  // a machine became usable
	Closing Kind = "close"   // a machine will leave; its pods fit elsewhere or it has none
	Replace Kind = "replace" // a machine will leave and is replaced
	Gone    Kind = "gone"    // a machine has left
	Blocked Kind = "wait"    // something is wanted and may not happen now
	Trouble Kind = "trouble" // something went wrong
)

// Decision is one thing that was decided, or that happened, in words for a user.
type Decision struct {
	At    time.Time
	Kind  Kind
	Node  string // the machine's short name, "" when none is concerned
	Pool  string
	Text  string
	Count int // how often the same was told
}

// openedWords says what was ordered and for what.
func openedWords(n Node, c *claim) string {
	text := fmt.Sprintf("opened %s", describeType(n))
	if need := needWords(c.Spec.Resources.Requests); need != "" {
		text += " for " + need
	}
	return text
}

func describeType(n Node) string {
	words := []string{n.Type}
	if n.CapacityType != "" {
		words = append(words, n.CapacityType)
	}
	if n.Zone != "" {
		words = append(words, n.Zone)
	}
	text := strings.Join(words, " ")
	if n.Price > 0 {
		text += fmt.Sprintf(" at $%.3f/h", n.Price)
	}
	return text
}

func needWords(r corev1.ResourceList) string {
	var words []string
	if pods := r.Pods().Value(); pods > 0 {
		words = append(words, plural(int(pods), "pod"))
	}
	if c := cores(r); c > 0 {
		words = append(words, fmt.Sprintf("%.3g CPU", c))
	}
	if g := gib(r); g > 0 {
		words = append(words, fmt.Sprintf("%.3g GiB", g))
	}
	if g := gpus(r); g > 0 {
		words = append(words, fmt.Sprintf("%.3g GPU", g))
	}
	return strings.Join(words, ", ")
}

// leavingWords says why a machine leaves.
func leavingWords(n Node, c *claim) (Kind, string) {
	switch why := leavingBecause(c); why {
	case "Empty":
		return Closing, "closing: no pod needs it any more (empty)"
	case "Underutilized":
		return Closing, fmt.Sprintf("closing: its %s fit elsewhere for less (consolidation of %s)", plural(n.Pods, "pod"), describeType(n))
	case "Drifted":
		return Replace, "replacing: it no longer is what its NodePool asks for" + driftWords(c)
	case "Unhealthy":
		return Replace, "replacing: the node is unhealthy and did not recover in its time"
	case "Expired":
		return Replace, fmt.Sprintf("draining: older than expireAfter %s", c.Spec.ExpireAfter)
	case "Interrupted":
		return Replace, "draining: the cloud takes this spot machine back"
	case "Deleted":
		return Closing, "draining: its NodeClaim was deleted"
	default:
		return Replace, "replacing: " + why
	}
}

func driftWords(c *claim) string {
	if reason := c.reason(conditionDrifted); reason != "" {
		return " (" + reason + ")"
	}
	return ""
}

// silent are reasons of events that repeat what conditions of the NodeClaim already told, or that concern no user.
var silent = map[string]bool{
	"Nominated": true, "DisruptionTerminating": true, "DisruptionLaunching": true, "DisruptionWaitingReadiness": true,
	"Unconsolidatable": true, "Evicted": true, "Launched": true, "Registered": true, "Initialized": true,
	"DisruptionReason": true, "Disrupted": true, "ConsistentStateFound": true,
}

// scheduler is the component whose complaints about pending pods are left out: the pods are counted anyway.
const scheduler = "default-scheduler"

// watched are the kinds of objects whose events are told.
var watched = map[string]bool{"NodeClaim": true, "Node": true, "NodePool": true, "SimulatedFault": true}

// kinds sorts the reasons whose kind their type does not tell.
var kinds = map[string]Kind{
	"DisruptionBlocked": Blocked, "ConsolidationRejected": Blocked, "NodeRepairBlocked": Blocked,
	"ConsolidationCandidate": Planned, "ConsolidationApproved": Planned,
	"FailedDraining": Blocked, "TerminationGracePeriodExpiring": Blocked,
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
	text := strings.TrimSuffix(strings.Join(strings.Fields(e.Message), " "), ".")
	if slices.ContainsFunc(passing, func(begin string) bool { return strings.HasPrefix(text, begin) }) {
		return Decision{}, false
	}
	d = Decision{At: eventTime(e), Kind: kind, Node: e.InvolvedObject.Name, Text: strings.Replace(text, "Failed to drain node,", "draining:", 1), Count: 1}
	if e.InvolvedObject.Kind == "NodePool" {
		d.Node, d.Pool = "", e.InvolvedObject.Name
	}
	if found := candidate.FindStringSubmatch(text); found != nil {
		// One command is told of each of its nodes; without the node they are one decision.
		d.Node, d.Text = "", fmt.Sprintf("consolidation found: to %s %s node(s) saves $%s/h", found[1], found[2], found[3])
	}
	return d, true
}

// candidate matches what Karpenter says of each node of a consolidation command.
var candidate = regexp.MustCompile(`^Consolidation candidate: (\w+).*\(part of (\d+)-node consolidation\) \(savings: \$([0-9.]+)\)`)

func tells(e *corev1.Event) bool {
	if e.InvolvedObject.Kind == "Pod" {
		return e.Reason == "FailedScheduling" && e.Source.Component != scheduler && e.ReportingController != scheduler
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

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
