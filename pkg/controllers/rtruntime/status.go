package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// report writes the status where it differs, and records what became of the McKube. What others changed
// meanwhile is looked at again first, so nothing is told twice. A state that only passes is written once it has not done so for a second, counts every five, if comes is true: the
// loop looks again after the time that is returned, and writes the last of them.
func (c *mckubes) report(ctx context.Context, g *governance, comes bool) (time.Duration, error) {
	now, key := c.Clock.Now(), client.ObjectKeyFromObject(g.mckube)
	status := statusOf(g, now)
	if equality.Semantic.DeepEqual(status, g.mckube.Status) {
		c.pace.same(key)
		return 0, nil
	}
	told := transitions(g, status)
	if wait := c.pace.wait(key, now, pause(g.mckube.Status, status)); comes && wait > 0 && len(told) == 0 {
		return wait, nil
	}
	if err := c.statuses.check(g.mckube); err != nil {
		return 0, fmt.Errorf("patching the status of McKube %s: %w", key, err)
	}
	reported := g.mckube.DeepCopy()
	reported.Status = status
	if err := c.Client.Status().Patch(ctx, reported, client.MergeFromWithOptions(g.mckube, client.MergeFromWithOptimisticLock{})); err != nil {
		return 0, fmt.Errorf("patching the status of McKube %s: %w", key, err)
	}
	c.pace.wrote(key, now)
	c.statuses.wrote(g.mckube, reported)
	c.publish(told...)
	return 0, nil
}

// transitions are the Events of a status that differs from the one before. What becomes of single
// containers on their nodes is told by the loop over nodes.
func transitions(g *governance, now mcv1.McKubeStatus) []events.Event {
	var out []events.Event
	became := func(condition string, status metav1.ConditionStatus) (metav1.Condition, bool) {
		before, after := meta.FindStatusCondition(g.mckube.Status.Conditions, condition), meta.FindStatusCondition(now.Conditions, condition)
		return *after, after.Status == status && (before == nil || before.Status != status || before.Reason != after.Reason)
	}
	uid := string(g.mckube.UID)
	switch admitted, yes := became(mcv1.ConditionAdmitted, metav1.ConditionFalse); {
	case yes && admitted.Reason == reasonBudgetKept:
		out = append(out, events.BudgetKept(g.mckube, uid, admitted.Message))
	case yes && refusal(admitted.Reason):
		out = append(out, events.Refused(g.mckube, uid, admitted.Reason, admitted.Message))
	}
	if ready, yes := became(mcv1.ConditionReady, metav1.ConditionFalse); yes && ready.Reason == reasonConflict && len(g.rivals) > 0 {
		out = append(out, events.Conflict(g.mckube, uid, g.rivals[0].Name))
	}
	return append(out, tooCoarse(g)...)
}

// maxTooCoarse bounds how many pods are told at once that waiting will not help them.
const maxTooCoarse = 20

// tooCoarse tells pods that no node will ever take, because all end budgets later than claims allow: the
// scheduler only says that it cannot allocate, and no new node changes that.
func tooCoarse(g *governance) []events.Event {
	var out []events.Event
	for i, v := range g.verdicts() {
		other := func(n state.Number) bool { return n.Reason != state.ReasonGranularityTooCoarse }
		pod := g.parts[i].pod
		if len(v.blocking.Numbers) == 0 || slices.ContainsFunc(v.blocking.Numbers, other) || pod.NodeName != "" || len(out) == maxTooCoarse {
			continue
		}
		on := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
		out = append(out, events.Refused(on, string(pod.UID), state.ReasonGranularityTooCoarse, v.blocking.Message))
	}
	return out
}

// statusOf is the status of a McKube. It depends only on one snapshot, on the status before (times of transitions, what
// stays when its pods are gone) and on the time.
func statusOf(g *governance, now time.Time) mcv1.McKubeStatus {
	status := *g.mckube.Status.DeepCopy()
	status.ObservedGeneration = g.mckube.Generation
	status.Pods, status.ReadyPods = int32(len(g.pods())), 0
	status.Overruns, status.DeadlineMisses = 0, 0
	status.Node, status.AllocatedCore, status.Backend = "", "", ""
	status.CurrentRuntime = ""
	if g.mckube.Spec.RTSettings != nil {
		status.CurrentRuntime = v1alpha1.LevelLow
	}
	verdicts := g.verdicts()
	for i, p := range g.parts {
		addPart(&status, g.mckube, p)
		if verdicts[i].blocking.Name == "" {
			status.ReadyPods++ // a McKube governs one container of a pod
		}
	}
	for _, condition := range conditionsOf(g, verdicts, status) {
		condition.ObservedGeneration = g.mckube.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// addPart adds one container's numbers: the first that runs says where, the highest level counts.
func addPart(status *mcv1.McKubeStatus, m *mcv1.McKube, p part) {
	if status.Node == "" && p.pod.NodeName != "" {
		status.Node = p.pod.NodeName
		if core := p.given(); core != rt.NoCore {
			status.AllocatedCore = strconv.Itoa(core)
		}
		if p.node != nil {
			status.Backend = p.node.Backend
		}
	}
	if p.server == nil {
		return
	}
	if p.node != nil {
		overranAt(status, askedOn(p.node.RTNode)[p.server.ID].At)
	}
	if p.server.Applied == nil {
		return
	}
	applied := p.server.Applied
	status.Overruns += applied.Overruns
	status.DeadlineMisses += applied.Misses
	if t := applied.LastOverrunTime; t != nil {
		overranAt(status, t.Time)
	}
	if rank(m, applied.Level) > rank(m, status.CurrentRuntime) {
		status.CurrentRuntime = applied.Level
	}
}

// overranAt keeps the time of the last overrun, in whole seconds.
func overranAt(status *mcv1.McKubeStatus, at time.Time) {
	if !at.IsZero() && (status.LastOverrunTime == nil || at.After(status.LastOverrunTime.Time)) {
		status.LastOverrunTime = &metav1.Time{Time: at.Truncate(time.Second)}
	}
}

// given is the core that the container was assigned to or, before that, the one of its claim.
func (p part) given() int {
	if id := p.physical(); id != rt.NoCore {
		return id
	}
	if p.Claim.Allocated() {
		return p.Claim.Core
	}
	return rt.NoCore
}

// rank orders levels by their budgets: low, those between, hi.
func rank(m *mcv1.McKube, level string) int {
	switch level {
	case "", v1alpha1.LevelLow:
		return 0
	case v1alpha1.LevelHigh:
		return 1 << 30
	}
	if m.Spec.RTSettings != nil {
		levels := slices.Clone(m.Spec.RTSettings.Levels)
		slices.SortFunc(levels, func(a, b mcv1.Level) int { return int(a.Runtime - b.Runtime) })
		return 1 + slices.IndexFunc(levels, func(l mcv1.Level) bool { return l.Name == level })
	}
	return 0
}
