package optimizer

import (
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/packing"
)

// Reasons of conditions.
const (
	ReasonMeasured       = "Measured"
	ReasonModelled       = "Modelled"
	ReasonPriceUnknown   = "PriceUnknown"
	ReasonUnreadable     = "NodePoolUnreadable"
	ReasonWithinBudget   = "WithinBudget"
	ReasonOverBudget     = "OverBudget"
	ReasonWithinPower    = "WithinPowerLimit"
	ReasonOverPower      = "OverPowerLimit"
	ReasonUnlimited      = "Unlimited"
	ReasonNoPods         = "NoPods"
	ReasonPodsReady      = "PodsReady"
	ReasonPodsNotReady   = "PodsNotReady"
	ReasonPodsWait       = "PodsWaitForNodes"
	ReasonKept           = "ConstraintsKept"
	ReasonBroken         = "ConstraintsBroken"
	ReasonMachines       = "MachinesAllowed"
	ReasonNoMachine      = "NoMachine"
	ReasonCostTooLow     = "CostLimitTooLow"
	ReasonPowerTooLow    = "PowerLimitTooLow"
	ReasonSuspended      = "Suspended"
	ReasonInvalid        = "Invalid"
	ReasonStatusUpToDate = "UpToDate"
)

// grace is how long a constraint may be broken before the score is 0: while pods are replaced both of them count.
const grace = 5 * time.Minute

// judgement collects the next status of a WorkloadOptimizer.
type judgement struct {
	wo     *kcloudv1alpha1.WorkloadOptimizer
	status kcloudv1alpha1.WorkloadOptimizerStatus
	now    time.Time
}

func newJudgement(wo *kcloudv1alpha1.WorkloadOptimizer, now time.Time) *judgement {
	j := &judgement{wo: wo, status: *wo.Status.DeepCopy(), now: now}
	j.status.ObservedGeneration = wo.Generation
	return j
}

func (j *judgement) set(condition string, holds bool, reason, format string, args ...any) {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...), ObservedGeneration: j.wo.Generation}
	if holds {
		c.Status = metav1.ConditionTrue
	}
	c.LastTransitionTime = metav1.NewTime(j.now)
	meta.SetStatusCondition(&j.status.Conditions, c)
}

// suspend says that nothing is looked at. The figures of before are taken away: they would be taken for today's.
func (j *judgement) suspend() {
	j.forget()
	j.status.Phase = kcloudv1alpha1.PhaseSuspended
	j.set(kcloudv1alpha1.ConditionReady, false, ReasonSuspended, "Annotation %s is \"true\"", kcloudv1alpha1.AnnotationDisabled)
}

// refuse says what in the spec cannot be read.
func (j *judgement) refuse(err error) {
	j.forget()
	j.status.Phase = kcloudv1alpha1.PhaseFailed
	j.set(kcloudv1alpha1.ConditionReady, false, ReasonInvalid, "%s", err)
}

func (j *judgement) forget() {
	ready := meta.FindStatusCondition(j.status.Conditions, kcloudv1alpha1.ConditionReady)
	j.status = kcloudv1alpha1.WorkloadOptimizerStatus{ObservedGeneration: j.wo.Generation, LastOptimizationTime: j.status.LastOptimizationTime}
	if ready != nil {
		j.status.Conditions = []metav1.Condition{*ready}
	}
}

// judge fills the status from the figures and the market.
func (j *judgement) judge(f figures, m market) {
	shapes := shapesOf(m, j.wo, f.pods)
	j.figures(f)
	j.quality(f, m)
	j.availability(f)
	feasible := j.feasibility(shapes, m)
	kept := j.constraints(f)
	j.score(f, shapes)
	j.phase(f, feasible, kept)
	j.set(kcloudv1alpha1.ConditionReady, true, ReasonStatusUpToDate, "The status tells what the pods cost and draw")
}

func (j *judgement) figures(f figures) {
	s := &j.status
	s.CurrentCost, s.IdleCost = round(f.own.Cost, 6), round(f.idle.Cost, 6)
	s.CurrentPower, s.IdlePower = round(f.own.Watts, 1), round(f.idle.Watts, 1)
	s.AssignedNode = f.node
	s.Replicas, s.ReadyReplicas = int32(len(f.pods)), f.ready //nolint:gosec // far fewer pods
}

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

// maxNamed bounds the names that a message lists.
const maxNamed = 3

func name(list []string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
}

func (j *judgement) quality(f figures, m market) {
	const c = kcloudv1alpha1.ConditionDataQuality
	switch {
	case len(f.unpriced) > 0:
		j.set(c, false, ReasonPriceUnknown, "The price of node %s is unknown and counts as 0: the workload costs more than status says", name(f.unpriced))
	case len(m.unread) > 0:
		j.set(c, false, ReasonUnreadable, "The cloud provider does not say which machines NodePool %s may open", name(m.unread))
	case len(f.modelled) > 0:
		j.set(c, false, ReasonModelled, "The watts of node %s come from a default model of its cores, memory and devices: its labels do not tell them", name(f.modelled))
	default:
		j.set(c, true, ReasonMeasured, "The prices are the provider's, the watts are modelled from those of each machine and what is requested of it")
	}
}

func (j *judgement) availability(f figures) {
	notReady := int32(len(f.pods)) - f.ready //nolint:gosec // far fewer pods
	j.set(kcloudv1alpha1.ConditionAvailable, f.ready > 0, pick(f.ready > 0, ReasonPodsReady, ReasonNoPods), "%d of %d pods are ready", f.ready, len(f.pods))
	switch {
	case f.waiting > 0:
		j.set(kcloudv1alpha1.ConditionProgressing, true, ReasonPodsWait, "%d of %d pods wait for a node", f.waiting, len(f.pods))
	case notReady > 0:
		j.set(kcloudv1alpha1.ConditionProgressing, true, ReasonPodsNotReady, "%d of %d pods are not ready", notReady, len(f.pods))
	default:
		j.set(kcloudv1alpha1.ConditionProgressing, false, pick(len(f.pods) > 0, ReasonPodsReady, ReasonNoPods), "%d pods, all of them ready", len(f.pods))
	}
}

func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// feasibility says whether machines that the NodePools allow can keep the constraints. While there are no pods it looks at pods as
// the spec describes them.
func (j *judgement) feasibility(shapes []*shape, m market) bool {
	const c = kcloudv1alpha1.ConditionFeasible
	cost, watts, count := 0.0, 0.0, 0
	if len(shapes) == 0 {
		count = j.described()
		best, reason := cheapestShape(shapesOf(m, j.wo, m.shapesOf(j.wo)))
		if best == nil {
			return j.noMachine(reason, m)
		}
		cost, watts = leastShare(best.offers, requestsOf(best.Pod))
		cost, watts = cost*float64(count), watts*float64(count)
	}
	for _, s := range shapes {
		if len(s.offers) == 0 {
			return j.noMachine(s.reason, m)
		}
		a, b := leastShare(s.offers, requestsOf(s.Pod))
		cost, watts, count = cost+a*float64(s.count), watts+b*float64(s.count), count+s.count
	}
	if limit := j.wo.Spec.CostConstraints; limit != nil && cost > limit.MaxCostPerHour {
		j.set(c, false, ReasonCostTooLow, "costConstraints.maxCostPerHour is %v; %d pods cost at least %.4f USD per hour on the cheapest machines that the NodePools allow", limit.MaxCostPerHour, count, cost)
		return false
	}
	if limit := j.wo.Spec.PowerConstraints; limit != nil && watts > limit.MaxPowerUsage {
		j.set(c, false, ReasonPowerTooLow, "powerConstraints.maxPowerUsage is %v; %d pods draw at least %.1f W on the thriftiest machines that the NodePools allow", limit.MaxPowerUsage, count, watts)
		return false
	}
	j.set(c, true, ReasonMachines, "%d pods cost at least %.4f USD per hour and draw at least %.1f W on machines that the NodePools allow", count, cost, watts)
	return true
}

// noMachine says that no machine takes the pods, unless the provider does not say which machines there are.
func (j *judgement) noMachine(reason string, m market) bool {
	if len(m.unread) == 0 {
		j.set(kcloudv1alpha1.ConditionFeasible, false, ReasonNoMachine, "%s", capitalize(reason))
		return false
	}
	meta.SetStatusCondition(&j.status.Conditions, metav1.Condition{
		Type: kcloudv1alpha1.ConditionFeasible, Status: metav1.ConditionUnknown, Reason: ReasonUnreadable, ObservedGeneration: j.wo.Generation,
		LastTransitionTime: metav1.NewTime(j.now), Message: fmt.Sprintf("The cloud provider does not say which machines NodePool %s may open", name(m.unread)),
	})
	return true
}

// described is how many pods are looked for while there are none.
func (j *judgement) described() int {
	if s := j.wo.Spec.AutoScaling; s != nil {
		return max(1, int(s.MinReplicas))
	}
	return 1
}

// cheapestShape is the one that can cost least; nil and a reason where none fits any machine.
func cheapestShape(shapes []*shape) (best *shape, reason string) {
	least := math.Inf(1)
	for _, s := range shapes {
		if len(s.offers) == 0 {
			reason = s.reason
			continue
		}
		if cost, _ := leastShare(s.offers, requestsOf(s.Pod)); cost < least {
			best, least = s, cost
		}
	}
	return best, reason
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// constraints compares the figures with what they may be.
func (j *judgement) constraints(f figures) bool {
	kept := true
	cost, watts := f.own.Cost, f.own.Watts
	if limit := j.wo.Spec.CostConstraints; limit != nil {
		within := cost <= limit.MaxCostPerHour
		kept = within
		j.set(kcloudv1alpha1.ConditionCostOptimized, within, pick(within, ReasonWithinBudget, ReasonOverBudget), "%.4f of %v USD per hour", cost, limit.MaxCostPerHour)
	} else {
		j.set(kcloudv1alpha1.ConditionCostOptimized, true, ReasonUnlimited, "%.4f USD per hour; costConstraints bound nothing", cost)
	}
	if limit := j.wo.Spec.PowerConstraints; limit != nil {
		within := watts <= limit.MaxPowerUsage
		kept = kept && within
		j.set(kcloudv1alpha1.ConditionPowerOptimized, within, pick(within, ReasonWithinPower, ReasonOverPower), "%.1f of %v W", watts, limit.MaxPowerUsage)
	} else {
		j.set(kcloudv1alpha1.ConditionPowerOptimized, true, ReasonUnlimited, "%.1f W; powerConstraints bound nothing", watts)
	}
	j.set(kcloudv1alpha1.ConditionDegraded, !kept, pick(kept, ReasonKept, ReasonBroken), "%s", pick(kept, "All constraints are kept", "See conditions CostOptimized and PowerOptimized"))
	return kept
}

// score compares the placement with each pod on a machine of its own and with the bounds. There is none where a figure is
// missing: missing data never raises it.
func (j *judgement) score(f figures, shapes []*shape) {
	j.status.OptimizationScore, j.status.LowestCost = nil, 0
	var offers []offer
	baseCost, baseWatts := 0.0, 0.0
	for _, s := range shapes {
		if len(s.offers) == 0 {
			return
		}
		offers = append(offers, s.offers...)
		cost, watts := alone(s.offers, requestsOf(s.Pod))
		baseCost, baseWatts = baseCost+cost*float64(s.count), baseWatts+watts*float64(s.count)
	}
	total := sum(shapes)
	if len(shapes) == 0 || !anything(total) {
		return
	}
	lowest, err := lowestCost(offers, total)
	if err != nil {
		return
	}
	least, err := lowestWatts(offers, total)
	if err != nil {
		return
	}
	j.status.LowestCost = round(lowest, 6)
	if f.waiting > 0 || len(f.unpriced) > 0 {
		return
	}
	score := packing.Score(
		packing.Gain(baseCost, f.own.Cost+f.idle.Cost, lowest),
		packing.Gain(baseWatts, f.own.Watts+f.idle.Watts, least),
		float64(f.ready)/float64(len(f.pods)),
	)
	if j.brokenSince(kcloudv1alpha1.ConditionCostOptimized) > grace || j.brokenSince(kcloudv1alpha1.ConditionPowerOptimized) > grace {
		score = 0
	}
	score = round(score, 3)
	j.status.OptimizationScore = &score
}

func anything(list corev1.ResourceList) bool {
	for _, n := range vector(list) {
		if n > 0 {
			return true
		}
	}
	return false
}

func (j *judgement) brokenSince(condition string) time.Duration {
	c := meta.FindStatusCondition(j.status.Conditions, condition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return 0
	}
	return j.now.Sub(c.LastTransitionTime.Time)
}

func (j *judgement) phase(f figures, feasible, kept bool) {
	before := j.wo.Status.Phase
	switch {
	case !feasible:
		j.status.Phase = kcloudv1alpha1.PhaseFailed
	case len(f.pods) == 0 || int(f.waiting) == len(f.pods):
		j.status.Phase = kcloudv1alpha1.PhasePending
	case !kept || f.waiting > 0:
		j.status.Phase = kcloudv1alpha1.PhaseOptimizing
	default:
		j.status.Phase = kcloudv1alpha1.PhaseOptimized
		if before != kcloudv1alpha1.PhaseOptimized {
			now := metav1.NewTime(j.now)
			j.status.LastOptimizationTime = &now
		}
	}
}
