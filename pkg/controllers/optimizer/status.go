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
	ReasonModelled       = "Modelled"
	ReasonDefault        = "Default"
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
	ReasonTooManyShapes  = "TooManyKindsOfPods"
	ReasonLimitExceeded  = "LimitExceeded"
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

func (j *judgement) set(condition string, status metav1.ConditionStatus, reason, format string, args ...any) {
	conditions{list: &j.status.Conditions, generation: j.wo.Generation, now: j.now}.set(condition, status, reason, format, args...)
}

// truth is a condition's status for a fact.
func truth(holds bool) metav1.ConditionStatus {
	if holds {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// suspend says that nothing is looked at. The figures of before are taken away: they would be taken for today's.
func (j *judgement) suspend() {
	j.forget()
	j.status.Phase = kcloudv1alpha1.PhaseSuspended
	j.set(kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, ReasonSuspended, "Annotation %s is \"true\"", kcloudv1alpha1.AnnotationDisabled)
}

// refuse says what in the spec cannot be read.
func (j *judgement) refuse(err error) {
	j.forget()
	j.status.Phase = kcloudv1alpha1.PhaseFailed
	j.set(kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, ReasonInvalid, "%s", err)
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
	shapes, few := shapesOf(m, f)
	j.figures(f)
	j.quality(f, m)
	j.availability(f)
	feasible := j.feasibility(shapes, few, len(f.pods), m)
	kept := j.constraints(f)
	j.status.OptimizationScore, j.status.LowestCost = nil, 0
	if few && len(m.unread) == 0 {
		j.score(f, shapes)
	}
	j.phase(f, feasible, kept)
	j.set(kcloudv1alpha1.ConditionReady, metav1.ConditionTrue, ReasonStatusUpToDate, "The status tells what the pods cost and draw")
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
		j.set(c, metav1.ConditionFalse, ReasonPriceUnknown, "The price of node %s is unknown and counts as 0: the workload costs more than status says", name(f.unpriced))
	case len(m.unread) > 0:
		j.set(c, metav1.ConditionFalse, ReasonUnreadable, "The cloud provider does not say which machines NodePool %s may open", name(m.unread))
	case len(f.defaulted) > 0:
		j.set(c, metav1.ConditionFalse, ReasonDefault, "The watts of node %s come from a default model of its cores, memory and devices: its labels do not tell them", name(f.defaulted))
	default:
		j.set(c, metav1.ConditionTrue, ReasonModelled, "The prices are the provider's, the watts are modelled from those of each machine and what is requested of it")
	}
}

func (j *judgement) availability(f figures) {
	notReady := int32(len(f.pods)) - f.ready //nolint:gosec // far fewer pods
	j.set(kcloudv1alpha1.ConditionAvailable, truth(f.ready > 0), pick(f.ready > 0, ReasonPodsReady, ReasonNoPods), "%d of %d pods are ready", f.ready, len(f.pods))
	switch {
	case f.waiting > 0:
		j.set(kcloudv1alpha1.ConditionProgressing, metav1.ConditionTrue, ReasonPodsWait, "%d of %d pods wait for a node", f.waiting, len(f.pods))
	case notReady > 0:
		j.set(kcloudv1alpha1.ConditionProgressing, metav1.ConditionTrue, ReasonPodsNotReady, "%d of %d pods are not ready", notReady, len(f.pods))
	default:
		j.set(kcloudv1alpha1.ConditionProgressing, metav1.ConditionFalse, pick(len(f.pods) > 0, ReasonPodsReady, ReasonNoPods), "%d pods, all of them ready", len(f.pods))
	}
}

func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// least is the least that pods can cost and draw.
type least struct {
	cost, watts float64
	count       int
	reason      string // why there is no machine for them
}

// feasibility says whether machines that the NodePools allow can keep the constraints. Pods that run show that there is a machine for
// them. While there are no pods it looks at pods as the spec describes them.
func (j *judgement) feasibility(shapes []*shape, few bool, pods int, m market) bool {
	const c = kcloudv1alpha1.ConditionFeasible
	if !few {
		j.set(c, metav1.ConditionUnknown, ReasonTooManyShapes, "The %d pods ask for more than %d different kinds of nodes", pods, maxShapes)
		return true
	}
	candidates := []least{leastOf(shapes)}
	if len(shapes) == 0 {
		candidates = j.described(m)
	}
	reason, text := "", ""
	for _, l := range candidates {
		if reason, text = j.objection(l); reason == "" {
			j.set(c, metav1.ConditionTrue, ReasonMachines, "%d pods cost at least %.4f USD per hour and draw at least %.1f W on machines that the NodePools allow", l.count, l.cost, l.watts)
			return true
		}
	}
	if len(m.unread) > 0 {
		j.set(c, metav1.ConditionUnknown, ReasonUnreadable, "The cloud provider does not say which machines NodePool %s may open", name(m.unread))
		return true
	}
	j.set(c, metav1.ConditionFalse, reason, "%s", text)
	return false
}

// leastOf adds up what the pods of all shapes cost and draw at least: on the best machine that may be opened, or where they run.
func leastOf(shapes []*shape) least {
	l := least{}
	for _, s := range shapes {
		l.count += s.count
		if len(s.offers) == 0 {
			if s.waiting > 0 {
				return least{reason: s.reason, count: s.count}
			}
			l.cost, l.watts = l.cost+s.own.Cost, l.watts+s.own.Watts
			continue
		}
		cost, watts := leastShare(s.offers, requestsOf(s.Pod))
		cost, watts = cost*float64(s.count), watts*float64(s.count)
		if s.waiting == 0 {
			cost, watts = min(cost, s.own.Cost), min(watts, s.own.Watts)
		}
		l.cost, l.watts = l.cost+cost, l.watts+watts
	}
	return l
}

// described is what pods would cost and draw at least that are as the spec says, for each kind of devices that may serve them.
func (j *judgement) described(m market) []least {
	count := 1
	if s := j.wo.Spec.AutoScaling; s != nil {
		count = max(1, int(s.MinReplicas))
	}
	var list []least
	for _, p := range m.shapesOf(j.wo) {
		offers, reason := m.offers(p)
		l := least{reason: reason, count: count}
		if len(offers) > 0 {
			l.cost, l.watts = leastShare(offers, requestsOf(p))
			l.cost, l.watts = l.cost*float64(count), l.watts*float64(count)
		}
		list = append(list, l)
	}
	return list
}

// objection says why pods that cost and draw at least this cannot keep the constraints; empty: they can.
func (j *judgement) objection(l least) (reason, text string) {
	if l.reason != "" {
		return ReasonNoMachine, capitalize(l.reason)
	}
	if limit := j.wo.Spec.CostConstraints; limit != nil && l.cost > limit.MaxCostPerHour*(1+rounding) {
		return ReasonCostTooLow, fmt.Sprintf("costConstraints.maxCostPerHour is %v; %d pods cost at least %.4f USD per hour on the cheapest machines that the NodePools allow", limit.MaxCostPerHour, l.count, l.cost)
	}
	if limit := j.wo.Spec.PowerConstraints; limit != nil && l.watts > limit.MaxPowerUsage*(1+rounding) {
		return ReasonPowerTooLow, fmt.Sprintf("powerConstraints.maxPowerUsage is %v; %d pods draw at least %.1f W on the thriftiest machines that the NodePools allow", limit.MaxPowerUsage, l.count, l.watts)
	}
	return "", ""
}

// rounding is what sums of shares may be off by.
const rounding = 1e-9

func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// constraints compares the figures with what they may be. Where a price is unknown it is not known whether the workload costs what it
// may, unless the rest is too much already.
func (j *judgement) constraints(f figures) (kept bool) {
	kept, broken := true, false
	cost, watts := j.status.CurrentCost, j.status.CurrentPower
	limit := j.wo.Spec.CostConstraints
	switch {
	case limit == nil:
		j.set(kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionTrue, ReasonUnlimited, "%.4f USD per hour; costConstraints bound nothing", cost)
	case cost > limit.MaxCostPerHour:
		kept, broken = false, true
		j.set(kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionFalse, ReasonOverBudget, "%.4f of %v USD per hour", cost, limit.MaxCostPerHour)
	case len(f.unpriced) > 0:
		kept = false
		j.set(kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionUnknown, ReasonPriceUnknown, "%.4f of %v USD per hour, without node %s", cost, limit.MaxCostPerHour, name(f.unpriced))
	default:
		j.set(kcloudv1alpha1.ConditionCostOptimized, metav1.ConditionTrue, ReasonWithinBudget, "%.4f of %v USD per hour", cost, limit.MaxCostPerHour)
	}
	if limit := j.wo.Spec.PowerConstraints; limit != nil {
		within := watts <= limit.MaxPowerUsage
		kept, broken = kept && within, broken || !within
		j.set(kcloudv1alpha1.ConditionPowerOptimized, truth(within), pick(within, ReasonWithinPower, ReasonOverPower), "%.1f of %v W", watts, limit.MaxPowerUsage)
	} else {
		j.set(kcloudv1alpha1.ConditionPowerOptimized, metav1.ConditionTrue, ReasonUnlimited, "%.1f W; powerConstraints bound nothing", watts)
	}
	j.set(kcloudv1alpha1.ConditionDegraded, truth(broken), pick(broken, ReasonBroken, ReasonKept), "%s", pick(broken, "See conditions CostOptimized and PowerOptimized", "No constraint is broken"))
	return kept
}

// score compares the placement with each pod on a machine of its own and with the bounds. There is none where a figure is
// missing: missing data never raises it.
func (j *judgement) score(f figures, shapes []*shape) {
	baseCost, baseWatts := 0.0, 0.0
	for _, s := range shapes {
		if len(s.offers) == 0 {
			return
		}
		if !anything(requestsOf(s.Pod)) {
			continue // it needs no machine of its own
		}
		cost, watts := alone(s.offers, requestsOf(s.Pod))
		baseCost, baseWatts = baseCost+cost*float64(s.count), baseWatts+watts*float64(s.count)
	}
	offers, total := union(shapes), sum(shapes)
	if len(shapes) == 0 || !anything(total) {
		return
	}
	lowest, err := lowestCost(offers, total)
	if err != nil {
		return
	}
	j.status.LowestCost = round(lowest, 6)
	least, err := lowestWatts(offers, total)
	if err != nil || f.waiting > 0 || len(f.unpriced) > 0 {
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
	case !kept || f.waiting > 0 || int(f.ready) < len(f.pods):
		j.status.Phase = kcloudv1alpha1.PhaseOptimizing
	default:
		j.status.Phase = kcloudv1alpha1.PhaseOptimized
		if before != kcloudv1alpha1.PhaseOptimized {
			now := metav1.NewTime(j.now)
			j.status.LastOptimizationTime = &now
		}
	}
}
