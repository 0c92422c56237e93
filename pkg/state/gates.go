package state

import (
	"fmt"
	"strings"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// Names of the gates, in the order in which a container passes them.
const (
	GateMcKube     = "McKube"
	GateSettings   = "Settings"
	GateClaim      = "Claim"
	GateTemplate   = "Template"
	GateScheduling = "SchedulingGates"
	GateCore       = "Core"
	GateTogether   = "Together"
	GatePreemption = "Preemption"
	GateAllocated  = "Allocated"
	GateNode       = "Node"
	GateAgent      = "Agent"
	GatePlaced     = "Placed"
	GateConfigured = "Configured"
	GateMoved      = "Moved"
)

// Reasons of gates, beside those of rt.Verdict.
const (
	ReasonPassed               = "Passed"
	ReasonNoMcKube             = "NoMcKube"
	ReasonNoContainer          = "NoContainer"
	ReasonConflict             = "Conflict"
	ReasonInvalidSettings      = "InvalidSettings"
	ReasonNoClaim              = "NoClaim"
	ReasonNoClaimYet           = "NoClaimYet"
	ReasonNoTemplate           = "NoTemplate"
	ReasonClaimNotMade         = "ClaimNotMade"
	ReasonHeldBack             = "HeldBack"
	ReasonYields               = "Yields"
	ReasonGranularityTooCoarse = "GranularityTooCoarse"
	ReasonNodeRuledOut         = "NodeRuledOut"
	ReasonNoCoreFits           = "NoCoreFits"
	ReasonNoCores              = "NoCores"
	ReasonNodeHasNoCores       = "NodeHasNoCores"
	ReasonNoNodeFitsAll        = "NoNodeFitsAll"
	ReasonMakingRoom           = "MakingRoom"
	ReasonRoomCanBeMade        = "RoomCanBeMade"
	ReasonNotAllocated         = "NotAllocated"
	ReasonNotBound             = "NotBound"
	ReasonAgentSilent          = "AgentSilent"
	ReasonNoRTNode             = "NoRTNode"
	ReasonStaleRTNode          = "StaleRTNode"
	ReasonNotPlaced            = "NotPlaced"
	ReasonNotConfigured        = "NotConfigured"
	ReasonRefusedByAgent       = "RefusedByAgent"
	ReasonMoved                = "Moved"
)

// check looks at one gate for one container. A check that does not apply gives a Gate without a name.
type check func(s *Snapshot, pod *PodView, g Governed) Gate

// containerChecks are in the order in which a container passes them.
var containerChecks = []check{
	checkContainer, checkSettings, checkClaim, checkTemplate, checkScheduling, checkCore, checkPreemption,
	checkTogether, checkAllocated, checkNode, checkAgent, checkPlaced, checkConfigured, checkMoved,
}

// Gates lists the gates of a pod in order, container by container, each up to the first that it has not
// passed. A pod that runs as asked has passed them all.
func Gates(s *Snapshot, pod *PodView) []Gate {
	if len(pod.Governed) == 0 {
		return []Gate{ungoverned(pod)}
	}
	var out []Gate
	for _, g := range pod.Governed {
		for _, check := range containerChecks {
			gate := check(s, pod, g)
			if gate.Name == "" {
				continue
			}
			gate.Container = g.Container
			out = append(out, gate)
			if !gate.OK && !gate.advice() {
				break
			}
		}
	}
	return out
}

// advice tells that the gate after one that is not passed says what can be done about it.
func (g Gate) advice() bool {
	return g.Name == GateCore && g.Reason == ReasonNoCoreFits || g.Name == GateClaim && g.Reason == ReasonNoClaimYet
}

// Blocking is the first gate that the pod has not passed; false when it has passed all.
func Blocking(gates []Gate) (Gate, bool) {
	for _, g := range gates {
		if !g.OK {
			return g, true
		}
	}
	return Gate{}, false
}

func passed(name, format string, args ...any) Gate {
	return Gate{Name: name, OK: true, Reason: ReasonPassed, Message: fmt.Sprintf(format, args...)}
}

func closed(name, reason, format string, args ...any) Gate {
	return Gate{Name: name, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func ungoverned(pod *PodView) Gate {
	if _, labelled := pod.Labels[mcv1.LabelRT]; labelled && pod.NodeName == "" && len(pod.Claims) > 0 {
		return closed(GateMcKube, ReasonNoMcKube, "the pod has label %s and waits for a McKube in namespace %s that matches it; create one with spec.podname %q or a selector, or re-create the pod without the label", mcv1.LabelRT, pod.Namespace, pod.Name)
	}
	if _, labelled := pod.Labels[mcv1.LabelRT]; labelled {
		return closed(GateMcKube, ReasonNoMcKube, "the pod has label %s, but no McKube in namespace %s matches it; create one with spec.podname %q or a selector", mcv1.LabelRT, pod.Namespace, pod.Name)
	}
	return closed(GateMcKube, ReasonNoMcKube, "no McKube in namespace %s matches the pod, so it is scheduled as any other", pod.Namespace)
}

func checkContainer(_ *Snapshot, _ *PodView, g Governed) Gate {
	switch {
	case g.Container == "":
		return closed(GateMcKube, ReasonNoContainer, "%v", g.Err)
	case len(g.Rivals) > 0:
		gate := passed(GateMcKube, "McKube %s governs it; %s would too and is ignored, because it is younger", g.McKube.Name, names(g.Rivals))
		gate.Reason = ReasonConflict
		return gate
	default:
		return passed(GateMcKube, "McKube %s governs it", g.McKube.Name)
	}
}

func names(list []*mcv1.McKube) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Name)
	}
	return strings.Join(out, ", ")
}

func checkSettings(s *Snapshot, _ *PodView, g Governed) Gate {
	if g.Err != nil {
		return closed(GateSettings, ReasonInvalidSettings, "%v", g.Err)
	}
	v := g.Server
	charge := percent(v.Charge(s.granularity))
	if !v.MayEscalate() {
		raised := "never raised"
		if v.Low < v.High {
			raised = fmt.Sprintf("raised to %d us only where its core has room beside the raises of all others", v.High)
		}
		return passed(GateSettings, "%s, %d us in every %d us, %s: it takes %s of a core", v.Criticality, v.Low, v.Period, raised, charge)
	}
	if v.Limited {
		return passed(GateSettings, "%s, %d us in every %d us, raised to %d us one container at a time (%s): it takes %s of a core, and %s of its escalation reserve",
			v.Criticality, v.Low, v.Period, v.High, rt.TestT1k, charge, percent(v.Step()))
	}
	return passed(GateSettings, "%s, %d us in every %d us, raised to %d us at any time (%s): it takes %s of a core", v.Criticality, v.Low, v.Period, v.High, rt.TestT1, charge)
}

// podClaim is the entry of the pod's resourceClaims that the container uses for its core.
func (p *PodView) podClaim(container string) (PodClaim, bool) {
	for _, c := range p.Claims {
		if c.Container == container && c.Name == rtdra.ClaimName(container) {
			return c, true
		}
	}
	return PodClaim{}, false
}

func checkClaim(_ *Snapshot, pod *PodView, g Governed) Gate {
	claim, named := pod.podClaim(g.Container)
	switch {
	case named:
		return passed(GateClaim, "the pod asks for a core by claim %s", claim.Name)
	case g.Claim != nil:
		return passed(GateClaim, "the pod came before its McKube and was given claim %s afterwards", g.Claim.Name)
	case pod.NodeName != "":
		return closed(GateClaim, ReasonNoClaimYet, "the pod came before its McKube and has no claim on a core of node %s; the controller makes one when a core passes the test", pod.NodeName)
	default:
		return closed(GateClaim, ReasonNoClaim, "the pod was created without a claim on a core (its McKube came later, or the webhook was down); re-create the pod")
	}
}

func checkTemplate(s *Snapshot, pod *PodView, g Governed) Gate {
	claim, named := pod.podClaim(g.Container)
	if !named || claim.Template == "" || g.Claim.Allocated() {
		return Gate{}
	}
	if node := mcv1.UserNode(g.McKube); g.Claim == nil && rtdra.Awaited(claim.Template) && node != "" {
		return closed(GateTemplate, ReasonNoTemplate, "McKube %s binds the pod to node %s, and a pod that came before its McKube can no longer be bound; re-create the pod", g.McKube.Name, node)
	}
	if g.Claim == nil && !s.Template(pod.Namespace, claim.Template) {
		return closed(GateTemplate, ReasonNoTemplate, "the claim's template %s does not exist; the controller makes it when McKube %s is in order", claim.Template, g.McKube.Name)
	}
	if g.Claim == nil {
		return closed(GateTemplate, ReasonClaimNotMade, "template %s exists; Kubernetes has not made the claim from it yet", claim.Template)
	}
	current, err := rtdra.TemplateName(g.McKube, s.granularity)
	if rtdra.Awaited(claim.Template) {
		return passed(GateTemplate, "the pod came first; claim %s was made when McKube %s filled template %s", g.Claim.Name, g.McKube.Name, claim.Template)
	}
	if err == nil && current != claim.Template {
		return passed(GateTemplate, "claim %s was made from template %s; McKube %s has changed since, and new pods get %s", g.Claim.Name, claim.Template, g.McKube.Name, current)
	}
	return passed(GateTemplate, "claim %s was made from template %s", g.Claim.Name, claim.Template)
}

func checkScheduling(s *Snapshot, pod *PodView, _ Governed) Gate {
	if len(pod.SchedulingGates) == 0 {
		return Gate{}
	}
	for _, name := range pod.SchedulingGates {
		if name != mcv1.GateYield {
			return closed(GateScheduling, ReasonHeldBack, "scheduling gate %s holds the pod back", name)
		}
	}
	for _, p := range s.Preemptions() {
		if p.Pod.UID != pod.UID {
			return closed(GateScheduling, ReasonYields, "it waits until the more critical pod %s has a core (%s)", p.Pod.Key(), p.Node)
		}
	}
	return closed(GateScheduling, ReasonYields, "it waited for a more critical pod, which waits no more; the controller takes scheduling gate %s away", mcv1.GateYield)
}

func checkAllocated(_ *Snapshot, pod *PodView, g Governed) Gate {
	if g.Claim.Allocated() {
		return Gate{} // the core gate says it
	}
	if pod.NodeName != "" {
		return closed(GateAllocated, ReasonNotAllocated, "meanwhile it runs on node %s as an ordinary container", pod.NodeName)
	}
	if pod.Unschedulable != "" {
		return closed(GateAllocated, ReasonNotAllocated, "the scheduler says: %s", pod.Unschedulable)
	}
	return closed(GateAllocated, ReasonNotAllocated, "the scheduler has not given the claim a core yet")
}

func checkNode(_ *Snapshot, pod *PodView, g Governed) Gate {
	if pod.NodeName == "" {
		return closed(GateNode, ReasonNotBound, "core %d of node %s is kept for the pod, which is not bound yet", g.Claim.Core, g.Claim.Node)
	}
	return passed(GateNode, "it runs on node %s", pod.NodeName)
}

// checkMoved says where it runs when that is not where the claim is, and what became of it before.
func checkMoved(s *Snapshot, pod *PodView, g Governed) Gate {
	n, ok := s.NodeView(pod.NodeName)
	if !ok {
		return Gate{}
	}
	v, ok := n.Server(g.Server.ID)
	if !ok || v.Physical == v.Witness || v.Witness == rt.NoCore {
		return preempted(g)
	}
	gate := passed(GateMoved, "its claim is on core %d and it was moved to core %d%s", v.Witness, v.Physical, because(g))
	gate.Reason = ReasonMoved
	return gate
}

// because quotes the McKube's condition Preempted, if it holds.
func because(g Governed) string {
	for _, c := range g.McKube.Status.Conditions {
		if c.Type == mcv1.ConditionPreempted && c.Status == "True" && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

func preempted(g Governed) Gate {
	why := because(g)
	if why == "" {
		return Gate{}
	}
	gate := passed(GateMoved, "McKube %s was preempted%s", g.McKube.Name, why)
	gate.Reason = ReasonMoved
	return gate
}
