package rtruntime

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// NewMcKubes is the loop over McKubes.
func NewMcKubes(d Dependencies) reconcile.Reconciler { return newMcKubes(d) }

// Rested has a second pass since the loop over McKubes has written, or put off, what only passes.
func Rested(r reconcile.Reconciler) {
	c := r.(*mckubes)
	c.pace = newPace()
	for _, pods := range c.placed.since {
		for uid, at := range pods {
			pods[uid] = at.Add(-passing)
		}
	}
}

// StatusOf is the status of a McKube on a snapshot. kept are why budgets that grew are not in force, by ID of
// the server.
func StatusOf(s *state.Snapshot, m *mcv1.McKube, now time.Time, kept map[string]string) mcv1.McKubeStatus {
	g := govern(s, m)
	for id, why := range kept {
		g.blocked[id] = state.Gate{Name: state.GateCore, Reason: reasonBudgetKept, Message: why}
	}
	return statusOf(g, now)
}

// EventsOf are the reasons of the Events of a status after the one before.
func EventsOf(s *state.Snapshot, m *mcv1.McKube, now mcv1.McKubeStatus) []string {
	var out []string
	for _, e := range transitions(govern(s, m), now) {
		out = append(out, e.Reason)
	}
	return out
}

// ToldOf are the messages of the Events about a pod, by reason.
func ToldOf(s *state.Snapshot, m *mcv1.McKube, now mcv1.McKubeStatus, pod types.UID) map[string]string {
	out := map[string]string{}
	for _, e := range transitions(govern(s, m), now) {
		if p, ok := e.Object.(*corev1.Pod); ok && p.UID == pod {
			out[e.Reason] = e.Message
		}
	}
	return out
}

// Pause is for how long a status may be left unwritten after the one before.
var Pause = pause

// AnnotationsOf are those of a pod.
func AnnotationsOf(s *state.Snapshot, namespace, pod string) map[string]string {
	view, ok := s.PodNamed(namespace, pod)
	if !ok {
		return nil
	}
	return annotationsOf(s, view)
}

// Concerned are the IDs of the servers that a change of a node concerns.
func Concerned(before, after *state.NodeView) []string {
	var out []string
	for _, s := range concerned(before, after) {
		out = append(out, s.ID)
	}
	return out
}

// PartOf is what is to be done for the first container that a McKube governs: whether it is adopted, which
// bandwidth its claims are short of, and the suffix of the claim that pays it.
func PartOf(s *state.Snapshot, m *mcv1.McKube, granularity int64) (adoptable bool, missing rt.PPM, suffix string) {
	p := govern(s, m).parts[0]
	if p.Claim != nil {
		suffix = p.furtherSuffix()
	}
	return p.adoptable(), p.missing(granularity), suffix
}

// Listed names the first of many.
var Listed = listed

// Refusals is a record of refusals: note looks at a McKube of a snapshot, forget at one that is gone.
func Refusals() (note func(*state.Snapshot, *mcv1.McKube), forget func(*mcv1.McKube)) {
	c := &mckubes{refused: newRefusedContainers()}
	return func(s *state.Snapshot, m *mcv1.McKube) { c.recordRefusals(client.ObjectKeyFromObject(m), govern(s, m)) },
		func(m *mcv1.McKube) { c.refused.record(client.ObjectKeyFromObject(m), nil, nil) }
}
