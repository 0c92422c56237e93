package agent

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// Reasons of the conditions that the agent writes.
const (
	ReasonApplied             = "Applied"
	ReasonSpecRefused         = "SpecRefused"
	ReasonTableRefused        = "TableRefused"
	ReasonNotApplied          = "NotApplied"
	ReasonFastPathUnreachable = "FastPathUnreachable"
	ReasonNoBackend           = "NoBackend"
	ReasonRealtime            = "Realtime"
	ReasonNotRealtime         = "NotRealtime"
	ReasonSteady              = "Steady"
	ReasonBudgetsChanged      = "BudgetsChanged"
)

// blocked is the backend of a kernel that enforces no budget.
const blocked = "blocked"

// view is everything that a status is made of.
type view struct {
	world    *World // with an RTNode
	applied  *Applied
	counted  *Counted // nil before the fast path's first answer
	pressure pressure.State
	cores    []rt.Core // that the node offers, by ID
	drifted  bool
	version  string
	// checkpoint is what the node can do about the state of containers.
	checkpoint *v1alpha1.CheckpointCapability
	before     []metav1.Condition
	now        time.Time
}

// status is what RTNode.status should say, but for the heartbeat. It depends on nothing but the view.
func (v view) status() v1alpha1.RTNodeStatus {
	r := v.world.RTNode
	out := v1alpha1.RTNodeStatus{
		ObservedGeneration: v.observed(), AgentVersion: v.version, Backend: r.Status.Backend,
		BudgetGranularityUs: r.Status.BudgetGranularityUs, Cores: r.Status.Cores, Servers: v.lastKnown(),
		Pressure: r.Status.Pressure, Checkpoint: v.checkpoint,
	}
	if v.pressure.Known { // an agent that has just started knows no better than the one before
		out.Pressure = pressureStatus(v.pressure)
	}
	if v.answered() {
		report := v.counted.Report
		out.Backend, out.BudgetGranularityUs = report.Backend, report.GranularityUs
		out.Cores, out.Servers = v.coreStatus(report), v.servers(report)
	}
	faulty := 0
	for _, s := range out.Servers {
		if s.Error != "" {
			faulty++
		}
	}
	out.Conditions = v.conditions(faulty, len(out.Servers), out.ObservedGeneration)
	return out
}

// answered says that the fast path has ever reported.
func (v view) answered() bool { return v.counted != nil && v.counted.Report.Instance != "" }

// observed is the generation that is applied. An RTNode that replaces another begins at 1 again, so
// the fast path's word alone does not do.
func (v view) observed() int64 {
	a := v.applied
	if a != nil && a.Err == nil && a.RTNode == v.world.RTNode.UID {
		return a.Table.Generation
	}
	return v.world.RTNode.Status.ObservedGeneration
}

// lastKnown are the servers as last reported, of those that are still asked for.
func (v view) lastKnown() []v1alpha1.RTServerStatus {
	wanted := map[string]bool{}
	for _, s := range v.world.RTNode.Spec.Servers {
		wanted[idOf(s)] = true
	}
	return slices.DeleteFunc(slices.Clone(v.world.RTNode.Status.Servers), func(s v1alpha1.RTServerStatus) bool { return !wanted[statusID(s)] })
}

func statusID(s v1alpha1.RTServerStatus) string { return rtdra.ServerID(s.PodUID, s.Container) }

func (v view) servers(report table.Report) []v1alpha1.RTServerStatus {
	reported := make(map[string]table.ServerReport, len(report.Servers))
	for _, s := range report.Servers {
		reported[s.ID] = s
	}
	var out []v1alpha1.RTServerStatus
	for _, spec := range v.world.RTNode.Spec.Servers {
		id := idOf(spec)
		s := serverStatus(spec, reported[id], v.counted.Servers[id])
		if v.applied != nil && v.applied.Faults[id] != "" {
			s.Error = v.applied.Faults[id]
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b v1alpha1.RTServerStatus) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	return out
}

func serverStatus(spec v1alpha1.RTServer, s table.ServerReport, total Total) v1alpha1.RTServerStatus {
	out := v1alpha1.RTServerStatus{
		PodUID: spec.PodUID, Container: spec.Container, BudgetUs: s.BudgetUs, PeriodUs: s.PeriodUs,
		Level: spec.LevelAt(cmp.Or(s.LevelUs, s.BudgetUs)), Error: s.Error, Escapes: s.Escapes,
		RealtimeThreads: int32(min(s.RealtimeThreads, math.MaxInt32)), //nolint:gosec // at most that
		Overruns:        signed(total.Overruns), Misses: signed(total.Misses), Drift: signed(total.Drift),
	}
	for _, core := range slices.Sorted(slices.Values(s.Cores)) {
		out.Cores = append(out.Cores, int32(core))
	}
	if !total.LastOverrun.IsZero() {
		out.LastOverrunTime = ptr.To(metav1.NewMicroTime(total.LastOverrun.Truncate(time.Microsecond)))
	}
	return out
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// coreStatus are the cores that the node offers, with what is promised on them.
func (v view) coreStatus(report table.Report) []v1alpha1.RTCoreStatus {
	var out []v1alpha1.RTCoreStatus
	for _, c := range v.cores {
		status := v1alpha1.RTCoreStatus{
			ID: int32(c.ID), NUMA: int32(c.NUMA), Sibling: int32(c.Sibling),
			CapacityPpm: int64(c.Capacity), EscalationReservePpm: int64(c.EscalationReserve),
		}
		if i := slices.IndexFunc(report.Cores, func(r table.CoreReport) bool { return r.ID == c.ID }); i >= 0 {
			status.ReservedPpm = report.Cores[i].PromisedPpm
		}
		out = append(out, status)
	}
	return out
}

func pressureStatus(p pressure.State) v1alpha1.RTPressure {
	out := v1alpha1.RTPressure{CPUPercent: p.Percent}
	if p.PSI != nil {
		out.PSI = ptr.To(p.PSI.Some.Avg10)
	}
	if !p.BusySince.IsZero() {
		out.BusySince = ptr.To(metav1.NewTime(p.BusySince.Truncate(time.Second)))
	}
	return out
}

// conditions keep the times of those that do not change.
func (v view) conditions(faulty, all int, generation int64) []metav1.Condition {
	out := slices.DeleteFunc(slices.Clone(v.before), func(c metav1.Condition) bool { return !slices.Contains(ownConditions, c.Type) })
	for _, c := range []metav1.Condition{v.ready(faulty, all), v.realtime(), v.drift()} {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(v.now.Truncate(time.Second))
		meta.SetStatusCondition(&out, c)
	}
	return out
}

// ownConditions are the agent's; AgentAlive is the controller's.
var ownConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionAgentRealtime, v1alpha1.ConditionDrifted}

// ready names the first thing that keeps the spec from being obeyed.
func (v view) ready(faulty, all int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case v.counted == nil:
		c.Reason, c.Message = ReasonFastPathUnreachable, "The fast path has not been asked yet"
	case v.counted.Err != nil:
		c.Reason, c.Message = ReasonFastPathUnreachable, "The fast path does not answer: "+v.counted.Err.Error()
	case v.counted.Report.Backend == blocked:
		c.Reason, c.Message = ReasonNoBackend, "The kernel lets no budget be enforced; mainspring doctor says why: "+strings.Join(v.counted.Report.Missing, "; ")
	case v.counted.Report.Unenforced != "":
		c.Reason, c.Message = ReasonNoBackend, "The kernel enforces no budget now: "+v.counted.Report.Unenforced
	case v.applied == nil:
		c.Reason, c.Message = ReasonNotApplied, "The spec has not been given to the fast path yet"
	case v.applied.Err != nil:
		c.Reason, c.Message = ReasonNotApplied, "The spec could not be given to the fast path: "+v.applied.Err.Error()
		if why, yes := refusedTable(v.applied.Err); yes {
			c.Reason, c.Message = ReasonTableRefused, why
		}
	case faulty > 0:
		c.Reason = ReasonSpecRefused
		c.Message = fmt.Sprintf("%d of %d servers could not be applied; status.servers[].error says why", faulty, all)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonApplied, "The spec is applied"
		if v.counted.Report.Guarantee != "" {
			c.Message += ": " + v.counted.Report.Guarantee
		}
	}
	c.Message = bounded(c.Message)
	return c
}

func (v view) realtime() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAgentRealtime, Status: metav1.ConditionUnknown, Reason: ReasonFastPathUnreachable, Message: "The fast path has not answered"}
	switch {
	case !v.answered():
	case v.counted.Report.Realtime:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonRealtime, "The fast path runs with a real-time policy"
		if !v.counted.Report.Locked {
			c.Message += ", its memory not locked"
		}
	default:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonNotRealtime
		c.Message = bounded("The fast path is an ordinary process and answers late under load: " + strings.Join(v.counted.Report.Missing, "; "))
	}
	return c
}

func (v view) drift() metav1.Condition {
	if v.drifted {
		return metav1.Condition{
			Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionTrue, Reason: ReasonBudgetsChanged,
			Message: "Something else changed budgets or cores; they were set again",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionFalse, Reason: ReasonSteady, Message: "What was applied is in force",
	}
}

// maxMessage is the longest message of a condition that the API takes, in bytes, with room to spare.
const maxMessage = 4096

func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}
