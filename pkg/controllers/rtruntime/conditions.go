package rtruntime

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Reasons of conditions that are not those of a gate.
const (
	reasonReady                       = "Ready"
	reasonNoPod                       = "NoPod"
	reasonNoSettings                  = "NoSettings"
	reasonConflict                    = state.ReasonConflict
	reasonBudgetKept                  = "BudgetKept"
	reasonNameTaken                   = "NameTaken"
	reasonAtLow                       = "AtLow"
	reasonRaised                      = "Raised"
	reasonNotSqueezed, reasonSqueezed = "NotSqueezed", "Squeezed"
	reasonNotPreempted, reasonMoved   = "NotPreempted", state.ReasonMoved
	reasonEvicting, reasonEvicted     = "Evicting", "Evicted"
	reasonBudgetSuffices              = "BudgetSuffices"
	reasonBelowGranularity            = "BelowGranularity"
)

// verdict is the first gate that a container has not passed; its name is empty when it has passed all.
type verdict struct{ blocking state.Gate }

// beforePlacement are the gates that a container passes to be admitted; waiting for the binding of
// its pod comes after.
var beforePlacement = []string{
	state.GateMcKube, state.GateSettings, state.GateClaim, state.GateTemplate, state.GateScheduling,
	state.GateCore, state.GateTogether, state.GatePreemption, state.GateAllocated,
}

func (v verdict) admitted() bool { return !slices.Contains(beforePlacement, v.blocking.Name) }

// verdicts asks the gates of every part.
func (g *governance) verdicts() []verdict {
	out := make([]verdict, len(g.parts))
	for i, p := range g.parts {
		for _, gate := range state.Gates(g.snapshot, p.pod) {
			if gate.Container != p.Container || gate.OK {
				continue
			}
			out[i].blocking = gate
			if gate.Reason != state.ReasonNoClaimYet { // that there is no claim yet is what the next gate gives the reason for
				break
			}
		}
		if g.taken != "" && !p.Claim.Allocated() {
			out[i].blocking = state.Gate{Name: state.GateTemplate, Container: p.Container, Reason: reasonNameTaken, Message: takenMessage(g.taken)}
		}
		if blocked, ok := g.blocked[p.Server.ID]; ok {
			out[i].blocking = blocked
		}
		if out[i].blocking.Name == "" && !p.configured() {
			out[i].blocking = state.Gate{Name: state.GateConfigured, Container: p.Container, Reason: state.ReasonNotConfigured, Message: "the new settings are not in force yet"}
		}
	}
	return out
}

func takenMessage(template string) string {
	return fmt.Sprintf("claim template %s exists and does not belong to the McKube; delete it", template)
}

// refusal tells whether a container was looked at and no core was found.
func refusal(reason string) bool {
	waiting := []string{reasonNoPod, reasonNoSettings, reasonConflict, state.ReasonNoClaim, state.ReasonNoClaimYet,
		state.ReasonNoTemplate, state.ReasonClaimNotMade, state.ReasonNotAllocated, state.ReasonHeldBack, state.ReasonYields}
	return !slices.Contains(waiting, reason)
}

// conditionsOf are all conditions, in the order of the documentation.
func conditionsOf(g *governance, verdicts []verdict, status mcv1.McKubeStatus) []metav1.Condition {
	nothing, none := idle(g)
	if none {
		return []metav1.Condition{
			unmet(nothing, mcv1.ConditionAdmitted), unmet(nothing, mcv1.ConditionPlaced),
			unmet(nothing, mcv1.ConditionConfigured), escalated(g, status), degraded(g), preempted(g, nil),
			budgetTooLow(g), unmet(nothing, mcv1.ConditionReady),
		}
	}
	return []metav1.Condition{
		holdsFor(g, verdicts, mcv1.ConditionAdmitted, "a core was given to", func(_ part, v verdict) bool { return v.admitted() }),
		holdsFor(g, verdicts, mcv1.ConditionPlaced, "assigned to a core:", func(p part, _ verdict) bool { return p.physical() != rt.NoCore }),
		holdsFor(g, verdicts, mcv1.ConditionConfigured, "read back by the agent:", func(p part, _ verdict) bool { return p.configured() }),
		escalated(g, status), degraded(g), preempted(g, verdicts), budgetTooLow(g),
		ready(g, verdicts),
	}
}

// idle is why there is nothing to govern.
func idle(g *governance) (metav1.Condition, bool) {
	spec := g.mckube.Spec
	switch {
	case spec.RTSettings == nil:
		return metav1.Condition{Reason: reasonNoSettings, Message: "spec.rtSettings is not given, so nothing is governed yet"}, true
	case len(g.parts) > 0:
		return metav1.Condition{}, false
	case g.taken != "":
		return metav1.Condition{Reason: reasonNameTaken, Message: takenMessage(g.taken)}, true
	case len(g.rivals) > 0:
		return conflict(g), true
	case spec.Podname != "":
		return metav1.Condition{Reason: reasonNoPod, Message: fmt.Sprintf("there is no pod %s in namespace %s", spec.Podname, g.mckube.Namespace)}, true
	default:
		return metav1.Condition{Reason: reasonNoPod, Message: "no pod in the namespace matches spec.selector"}, true
	}
}

func unmet(c metav1.Condition, kind string) metav1.Condition {
	c.Type, c.Status = kind, metav1.ConditionFalse
	return c
}

// holdsFor is true when every container is so; else the first that is not says why.
func holdsFor(g *governance, verdicts []verdict, kind, what string, is func(part, verdict) bool) metav1.Condition {
	for i, p := range g.parts {
		if is(p, verdicts[i]) {
			continue
		}
		gate := verdicts[i].blocking
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: gate.Reason, Message: "pod " + p.pod.Name + ": " + gate.Message}
		if gate.Name == "" { // the cache has changed between two looks; the next one settles it
			c.Reason, c.Message = state.ReasonNotPlaced, "pod "+p.pod.Name+" is being looked at"
		}
		if kind == mcv1.ConditionConfigured && p.node != nil && p.node.Agent == state.AgentSilent {
			c.Status, c.Reason = metav1.ConditionUnknown, state.ReasonAgentSilent
			c.Message = "pod " + p.pod.Name + ": the agent of node " + p.node.Name + " is silent; what it applied last stays in force"
		}
		return c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reasonReady, Message: fmt.Sprintf("%s %d of %d", what, len(g.parts), len(g.parts))}
}

// ready sums up. A container that another McKube governs is a fault even while others are in order.
func ready(g *governance, verdicts []verdict) metav1.Condition {
	if len(g.rivals) > 0 {
		return unmet(conflict(g), mcv1.ConditionReady)
	}
	return holdsFor(g, verdicts, mcv1.ConditionReady, "admitted, placed and configured:", func(_ part, v verdict) bool { return v.blocking.Name == "" })
}

func conflict(g *governance) metav1.Condition {
	return metav1.Condition{Reason: reasonConflict, Message: fmt.Sprintf("McKube %s, which is older, governs the container already; delete one of the two", g.rivals[0].Name)}
}

func escalated(g *governance, status mcv1.McKubeStatus) metav1.Condition {
	if status.CurrentRuntime == "" || status.CurrentRuntime == v1alpha1.LevelLow {
		return metav1.Condition{Type: mcv1.ConditionEscalated, Status: metav1.ConditionFalse, Reason: reasonAtLow, Message: "no container runs above runtime_low" + notRaised(g)}
	}
	var raised []string
	for _, p := range g.parts {
		if p.level() != v1alpha1.LevelLow {
			raised = append(raised, p.pod.Name)
		}
	}
	return metav1.Condition{Type: mcv1.ConditionEscalated, Status: metav1.ConditionTrue, Reason: reasonRaised, Message: "raised: " + listed(raised)}
}

// notRaised says why no container of the McKube, or one of them, is raised; empty: all may be.
func notRaised(g *governance) string {
	s := g.mckube.Spec.RTSettings
	switch {
	case s == nil:
		return ""
	case s.RuntimeLow == s.RuntimeHi:
		return fmt.Sprintf(", nor ever will: runtime_hi is %d us, as runtime_low is; a container that uses it up waits for its next period", s.RuntimeHi)
	}
	for _, p := range g.parts {
		if p.Err == nil && p.Server.Criticality == rt.Low && p.physical() != rt.NoCore && !plannedRaise(p.node, p.Server.ID) {
			return fmt.Sprintf("; pod %s is not raised to runtime_hi, %d us: its criticality is Low, and core %d of node %s has no room for that beside what all others may be raised to",
				p.pod.Name, s.RuntimeHi, p.physical(), p.node.Name)
		}
	}
	return ""
}

// listed names the first of many: a McKube may govern thousands of pods, and a condition has an end.
func listed(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func degraded(g *governance) metav1.Condition {
	for _, p := range g.parts {
		if !p.obeyed() || p.server.Applied.BudgetUs >= p.server.Spec.BudgetLowUs {
			continue
		}
		return metav1.Condition{Type: mcv1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: reasonSqueezed,
			Message: fmt.Sprintf("pod %s has %d us in every %d us, less than runtime_low", p.pod.Name, p.server.Applied.BudgetUs, p.server.Applied.PeriodUs)}
	}
	return metav1.Condition{Type: mcv1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: reasonNotSqueezed, Message: "no container is below runtime_low"}
}

// budgetTooLow compares with how late the node's budgets end: less than that cannot be enforced.
func budgetTooLow(g *governance) metav1.Condition {
	for _, p := range g.parts {
		if p.node != nil && p.Err == nil && p.Server.Low < p.node.Measured {
			return metav1.Condition{Type: mcv1.ConditionBudgetTooLow, Status: metav1.ConditionTrue, Reason: reasonBelowGranularity,
				Message: fmt.Sprintf("runtime_low is %d us, and node %s ends budgets up to %d us late", p.Server.Low, p.node.Name, p.node.Measured)}
		}
	}
	return metav1.Condition{Type: mcv1.ConditionBudgetTooLow, Status: metav1.ConditionFalse, Reason: reasonBudgetSuffices, Message: "budgets are longer than nodes take to end them"}
}

// preempted says which container gave way for which pod. An evicted pod is gone, so the condition stays until a pod of
// the McKube is in order again.
func preempted(g *governance, verdicts []verdict) metav1.Condition {
	c := metav1.Condition{Type: mcv1.ConditionPreempted, Status: metav1.ConditionTrue}
	for _, p := range g.parts {
		if by, ok := g.evictedFor(p); ok {
			c.Reason, c.Message = reasonEvicting, fmt.Sprintf("pod %s is being evicted for pod %s of criticality %s", p.pod.Name, by.Pod.Key(), by.Criticality)
			return c
		}
		if winner, ok := displacedBy(p); ok {
			c.Reason = reasonMoved
			c.Message = fmt.Sprintf("pod %s runs on core %d; core %d of its claim went to pod %s/%s of criticality %s", p.pod.Name, p.server.Physical, p.server.Witness, winner.Namespace, winner.Pod, winner.Criticality)
			return c
		}
	}
	before := meta.FindStatusCondition(g.mckube.Status.Conditions, mcv1.ConditionPreempted)
	well := slices.ContainsFunc(verdicts, func(v verdict) bool { return v.blocking.Name == "" })
	if before != nil && before.Status == metav1.ConditionTrue && !well && before.Reason != reasonMoved {
		c.Reason, c.Message = reasonEvicted, before.Message
		if before.Reason == reasonEvicting {
			c.Message = strings.Replace(before.Message, "is being evicted", "was evicted", 1)
		}
		return c
	}
	return metav1.Condition{Type: mcv1.ConditionPreempted, Status: metav1.ConditionFalse, Reason: reasonNotPreempted, Message: "nothing gave way to a more critical pod"}
}

// evictedFor is the pod for which room is being made by the eviction of the part's pod.
func (g *governance) evictedFor(p part) (state.Preempting, bool) {
	for _, plan := range g.snapshot.Preemptions() {
		if slices.Contains(plan.Victims, p.pod.UID) {
			return plan, true
		}
	}
	return state.Preempting{}, false
}

// displacedBy is the more critical container that runs on the core of the part's claim, while the part
// runs elsewhere and the other's claim is elsewhere, too.
func displacedBy(p part) (state.ServerView, bool) {
	if p.server == nil || p.server.Physical == rt.NoCore || p.server.Witness == rt.NoCore || p.server.Physical == p.server.Witness {
		return state.ServerView{}, false
	}
	for _, other := range p.node.Servers {
		if other.Physical == p.server.Witness && other.Witness != other.Physical && other.Criticality > p.server.Criticality {
			return other, true
		}
	}
	return state.ServerView{}, false
}
