package agent

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
)

// told is a server as it was when its Events were last told.
type told struct {
	counts   Counts
	squeezed bool
	fault    bool
	escapes  bool
}

// situation is what Events about a server are made of.
type situation struct {
	spec   v1alpha1.RTServer
	node   string
	report table.ServerReport
	total  Total
	before told
}

// now is what will be told of next time.
func (s situation) now() told {
	return told{counts: s.total.Counts, squeezed: s.squeezed(), fault: s.report.Fault, escapes: s.report.Escapes != ""}
}

// squeezed: the server has less than its low budget, by the plan.
func (s situation) squeezed() bool {
	return s.report.LevelUs > 0 && s.report.LevelUs < s.spec.BudgetLowUs
}

// happened are the Events about a server since it was last told of.
func (s situation) happened() []events.Event {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.spec.Namespace, Name: s.spec.Pod, UID: s.spec.PodUID}}
	uid, at := string(s.spec.PodUID), s.where()
	since, budget := s.total.Since(s.before.counts), s.report.LevelUs
	var out []events.Event
	tell := func(n uint64, about func() events.Event) {
		if n > 0 {
			out = append(out, about())
		}
	}
	tell(since.Raises, func() events.Event { return events.EscalatedOnNode(pod, uid, at, since.Raises, budget) })
	tell(since.Partial, func() events.Event { return events.PartiallyEscalated(pod, uid, at, since.Partial, budget) })
	tell(since.Denied, func() events.Event { return events.EscalationDenied(pod, uid, at, since.Denied) })
	tell(since.Refused, func() events.Event { return events.EscalationRefused(pod, uid, at, since.Refused) })
	tell(s.atHigh(since), func() events.Event { return events.OverrunAtHighBudget(pod, uid, at, s.atHigh(since)) })
	tell(one(s.report.Fault && !s.before.fault), func() events.Event { return events.Faulted(pod, uid, at) })
	tell(one(s.report.Escapes != "" && !s.before.escapes), func() events.Event { return events.EscapesBudget(pod, uid, at, s.report.Escapes) })
	tell(since.Squeezes, func() events.Event { return events.Squeezed(pod, uid, at, since.Squeezes, budget) })
	tell(one(s.before.squeezed && !s.squeezed()), func() events.Event { return events.RestoredBudget(pod, uid, at, budget) })
	tell(since.Recoveries, func() events.Event { return events.RecoveredOnNode(pod, uid, at, since.Recoveries, budget) })
	tell(since.Misses, func() events.Event { return events.DeadlineMissed(pod, uid, at, since.Misses) })
	tell(since.Drift, func() events.Event { return events.Drifted(pod, uid, at, since.Drift) })
	return out
}

// atHigh is how many of the overruns were at the highest budget for certain: the server had it all the time.
func (s situation) atHigh(since Counts) uint64 {
	if s.report.LevelUs < s.spec.BudgetHighUs || since.Raises+since.Partial+since.Recoveries > 0 {
		return 0
	}
	return since.Overruns
}

func (s situation) where() events.Where {
	w := events.Where{Pod: s.spec.Namespace + "/" + s.spec.Pod, Container: s.spec.Container, Node: s.node}
	if len(s.spec.Cores) > 0 {
		w.Core = int(s.spec.Cores[0])
	}
	return w
}

func one(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}

func nodeObject(name string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}
