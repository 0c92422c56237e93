package environment

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// A summary is short: of a run's log readers often have only the end.
const (
	summaryErrors  = 2
	summaryObjects = 6
	summaryEvents  = 3
	summaryWidth   = 250 // bytes of a line
)

// summarize says whether the controller runs, of which errors it has told last, which objects are on their way, and what the last Events were.
func (env *Environment) summarize() string {
	lines := []string{"the controller runs"}
	if !env.Controller.Running() {
		lines[0] = "the controller does not run"
	}
	if err := env.Controller.Crash(); err != nil {
		lines[0] = "the controller has ended by itself: " + err.Error()
	}
	lines = append(lines, env.Controller.errorsSince(env.logStart, summaryErrors)...)
	h := env.recorder.History()
	var changing []string
	for _, c := range h.Last().NodeClaims {
		if !history.IsInitialized(c) || !c.DeletionTimestamp.IsZero() {
			changing = append(changing, describeNodeClaim(c))
		}
	}
	for _, p := range h.Last().Pods {
		if p.Spec.NodeName == "" || !p.DeletionTimestamp.IsZero() {
			changing = append(changing, describePod(p))
		}
	}
	lines = append(lines, changing[:min(len(changing), summaryObjects)]...)
	events := h.Events("", "")
	for _, e := range events[max(0, len(events)-summaryEvents):] {
		lines = append(lines, describeEvent(e))
	}
	for i, line := range lines {
		lines[i] = strings.ToValidUTF8(line[:min(len(line), summaryWidth)], "")
	}
	return strings.Join(lines, "\n")
}

// describe lists what the cluster holds and what was said about it, for a failed spec.
func (env *Environment) describe() string {
	h := env.recorder.History()
	now := h.Last()
	var lines []string
	for _, c := range now.NodeClaims {
		lines = append(lines, describeNodeClaim(c))
	}
	for _, n := range now.Nodes {
		lines = append(lines, fmt.Sprintf("Node %s deleting=%t taints=%v", n.Name, !n.DeletionTimestamp.IsZero(), taintKeys(n)))
	}
	for _, p := range now.Pods {
		lines = append(lines, describePod(p))
	}
	for _, n := range now.RTNodes {
		lines = append(lines, describeRTNode(n)...)
	}
	for _, m := range now.McKubes {
		lines = append(lines, describeMcKube(m))
	}
	for _, c := range now.Claims {
		lines = append(lines, describeClaim(c))
	}
	slices.Sort(lines)
	for _, e := range h.Events("", "") {
		lines = append(lines, describeEvent(e))
	}
	return strings.Join(lines, "\n")
}

func describePod(p *corev1.Pod) string {
	line := fmt.Sprintf("Pod %s %s on %q deleting=%t", p.Name, p.Status.Phase, p.Spec.NodeName, !p.DeletionTimestamp.IsZero())
	if len(p.Spec.SchedulingGates) > 0 {
		line += fmt.Sprintf(" gates=%v", p.Spec.SchedulingGates)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			line += " " + c.Message
		}
	}
	return line
}

func describeNodeClaim(c *karpenterv1.NodeClaim) string {
	return fmt.Sprintf("NodeClaim %s pool=%s type=%s %s $%g/h initialized=%t deleting=%t",
		c.Name, c.Labels[karpenterv1.NodePoolLabelKey], c.Labels[corev1.LabelInstanceTypeStable], c.Labels[karpenterv1.CapacityTypeLabelKey],
		history.Price(c), history.IsInitialized(c), !c.DeletionTimestamp.IsZero())
}

func describeRTNode(n *mckubev1alpha1.RTNode) []string {
	var lines []string
	for _, s := range n.Spec.Servers {
		lines = append(lines, fmt.Sprintf("RTNode %s: %s/%s %s %d-%d of %d us on cores %v at least %s",
			n.Name, s.Pod, s.Container, s.Criticality, s.BudgetLowUs, s.BudgetHighUs, s.PeriodUs, s.Cores, s.Level))
	}
	for _, s := range n.Status.Servers {
		lines = append(lines, fmt.Sprintf("RTNode %s: applied %s/%s %d us on cores %v at %s %s", n.Name, s.PodUID, s.Container, s.BudgetUs, s.Cores, s.Level, s.Error))
	}
	for _, c := range n.Status.Conditions {
		lines = append(lines, fmt.Sprintf("RTNode %s: %s=%s %s", n.Name, c.Type, c.Status, c.Reason))
	}
	return lines
}

func describeMcKube(m *mcoperatorv1.McKube) string {
	var conditions []string
	for _, c := range m.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return fmt.Sprintf("McKube %s %s at %s on core %q of %q: %s", m.Name, m.Spec.Criticality,
		m.Status.CurrentRuntime, m.Status.AllocatedCore, m.Status.Node, strings.Join(conditions, ", "))
}

func describeClaim(c *resourcev1.ResourceClaim) string {
	if c.Status.Allocation == nil {
		return fmt.Sprintf("ResourceClaim %s is not allocated", c.Name)
	}
	var devices []string
	for _, r := range c.Status.Allocation.Devices.Results {
		devices = append(devices, r.Pool+"/"+r.Device)
	}
	return fmt.Sprintf("ResourceClaim %s has %s", c.Name, strings.Join(devices, ", "))
}

func taintKeys(n *corev1.Node) []string {
	var keys []string
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys
}

func describeEvent(e *corev1.Event) string {
	return fmt.Sprintf("Event %s %s/%s %s: %s", e.LastTimestamp.Format("15:04:05"), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
}
