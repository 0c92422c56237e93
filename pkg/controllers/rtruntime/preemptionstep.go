package rtruntime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// preemptionLife is how long making room may take beside what victims take to end: while it lasts, less critical pods are
	// held back.
	preemptionLife = time.Minute
	// usualGrace of pods is within that. The plan waits for no pod longer than mostGrace.
	usualGrace = corev1.DefaultTerminationGracePeriodSeconds * time.Second
	mostGrace  = 10 * time.Minute
)

// waitsForCore tells whether a pod waits for nothing but cores, as far as the scheduler and we know, and may
// have room made for it.
func waitsForCore(pod *state.PodView) bool {
	return pod.NodeName == "" && !pod.Finished() && !pod.Deleting && len(pod.SchedulingGates) == 0 &&
		!pod.UnschedulableSince.IsZero() && claimsCores(pod) && criticalityOf(pod) > rt.Low
}

// claimsCores tells whether the webhook gave each governed container its claim: without, none is waited for.
func claimsCores(pod *state.PodView) bool {
	any := false
	for _, g := range pod.Governed {
		if g.McKube.Spec.RTSettings == nil {
			continue
		}
		name := rtdra.ClaimName(g.Container)
		if g.Err != nil || !slices.ContainsFunc(pod.Claims, func(c state.PodClaim) bool { return c.Name == name }) {
			return false
		}
		any = true
	}
	return any
}

// live are the plans that hold at a time, but for that of the pod itself.
func live(plans []state.Preempting, self types.UID, now time.Time) []state.Preempting {
	return slices.DeleteFunc(slices.Clone(plans), func(p state.Preempting) bool {
		return p.Pod.UID == self || !p.InForce(now)
	})
}

// beside keeps a scene off what other plans use: their cores, and their victims.
func (s scene) beside(others []state.Preempting) scene {
	s.promised, s.spared = map[place]bool{}, s.spared.with()
	for _, p := range others {
		for _, core := range p.Cores() {
			s.promised[place{p.Node, core}] = true
		}
		s.spared = s.spared.with(p.Victims...)
	}
	return s
}

// preemptionStep is what to do next about a plan.
type preemptionStep struct {
	// Outcome ends the plan; Failed: the pod has no node.
	Outcome string
	Failed  bool
	// Evict these, in turn, as far as they are still needed each time. None: wait.
	Evict []types.UID
}

// nextStep decides on a plan. The scene is that of its pod.
func nextStep(s scene, plan state.Preemption, now time.Time) preemptionStep {
	switch {
	case s.pod.NodeName != "":
		return preemptionStep{Outcome: "The pod is on node " + s.pod.NodeName}
	case s.pod.Deleting || s.pod.Finished():
		return preemptionStep{Outcome: "The pod is ending"}
	case !plan.InForce(now):
		return preemptionStep{Outcome: late(plan), Failed: true}
	case !waitsForCore(s.pod):
		return preemptionStep{Outcome: "The pod no longer waits for a core", Failed: true}
	case s.fits():
		return preemptionStep{}
	}
	left := s.remaining(plan)
	s.leaving = s.leaving.with(left...)
	if !s.fitsOn(plan.Node) {
		return preemptionStep{Outcome: fmt.Sprintf("Node %s would have no room for the pod even without the victims", plan.Node), Failed: true}
	}
	return preemptionStep{Evict: s.needed(plan.Node, left)}
}

func late(plan state.Preemption) string {
	outcome := fmt.Sprintf("There was no room for the pod within %s", plan.Life.Duration)
	if plan.Waits != "" {
		outcome += ": " + plan.Waits
	}
	return outcome
}

// remaining are the victims that are still there and may still be displaced, the most critical first.
func (s scene) remaining(plan state.Preemption) []types.UID {
	standing := map[types.UID]rt.Criticality{}
	for _, uid := range plan.Victims {
		victim, ok := s.snapshot.Pod(uid)
		if !ok || victim.Deleting || victim.Finished() || s.leaving[uid] || s.spared[uid] {
			continue
		}
		if c := criticalityOf(victim); c < criticalityOf(s.pod) && len(victim.Governed) > 0 {
			standing[uid] = c
		}
	}
	var out []types.UID
	for uid := range standing {
		out = append(out, uid)
	}
	slices.SortFunc(out, func(a, b types.UID) int {
		return cmp.Or(cmp.Compare(standing[b], standing[a]), cmp.Compare(a, b))
	})
	return out
}

// displaced tells whether a victim of a plan has gone, or goes.
func (s scene) displaced(plan state.Preemption) bool {
	return slices.ContainsFunc(plan.Victims, func(uid types.UID) bool {
		victim, ok := s.snapshot.Pod(uid)
		return !ok || victim.Deleting || victim.Finished()
	})
}

// needed are those of the victims without whose going the pod would not fit. The scene has all of them leave.
func (s scene) needed(node string, victims []types.UID) []types.UID {
	out := slices.Clone(victims)
	for _, uid := range victims {
		spared := s
		spared.leaving = s.leaving.with()
		delete(spared.leaving, uid)
		if spared.fitsOn(node) {
			s = spared
			out = slices.DeleteFunc(out, func(o types.UID) bool { return o == uid })
		}
	}
	return out
}

// backoff is when to try again an eviction that was refused: ever more rarely while the plan lasts.
func backoff(plan state.Preemption, now time.Time) time.Duration {
	age := now.Sub(begun(plan))
	return min(max(age/2, time.Second), 10*time.Second, max(plan.Deadline.Sub(now), soon))
}

// begun is when a plan was decided on.
func begun(plan state.Preemption) time.Time { return plan.Deadline.Add(-plan.Life.Duration) }

// lifeFor is how long making room may take: a victim that is on its way out when the plan ends was evicted for nothing.
func lifeFor(s *state.Snapshot, victims []types.UID) time.Duration {
	longest := usualGrace
	for _, uid := range victims {
		if v, ok := s.Pod(uid); ok {
			longest = max(longest, min(v.Grace, mostGrace))
		}
	}
	return preemptionLife + longest - usualGrace
}
