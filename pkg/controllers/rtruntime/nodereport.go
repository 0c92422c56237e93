package rtruntime

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// report tells and counts what a decision that was carried out has changed.
func (c *nodes) report(ctx context.Context, n *state.NodeView, known memory, d nodeDecision, asked moves) {
	c.publish(placementEvents(n, d, asked)...)
	c.publish(unmovedEvents(n, known, d, asked)...)
	c.publish(refusalEvents(n, known, d)...)
	levels := levelEvents(n, known)
	logLevels(ctx, levels)
	c.publish(levels...)
	c.publish(pressureEvents(n, known, d)...)
	count(n, known, d)
}

// logLevels logs each escalation and recovery once, as MC-Kube's controller does: the McKube's Event says the same as the pod's.
func logLevels(ctx context.Context, list []events.Event) {
	for _, e := range list {
		if pod, ok := e.Object.(*corev1.Pod); ok {
			log.FromContext(ctx).Info(e.Message, "reason", e.Reason, "Pod", client.ObjectKeyFromObject(pod))
		}
	}
}

// count adds to the counters.
func count(n *state.NodeView, known memory, d nodeDecision) {
	for _, change := range d.Changes {
		switch change.Reason {
		case rt.ChangePlaced:
			metrics.Admissions.WithLabelValues(metrics.VerdictAdmitted, d.testOn(change.To)).Inc()
		case rt.ChangeDisplaced:
			metrics.Preemptions.WithLabelValues(metrics.ActionMove).Inc()
		}
	}
	for id, v := range d.Refused {
		if known.refused[id] != v.Reason {
			metrics.Admissions.WithLabelValues(metrics.VerdictRefused, v.Test).Inc()
		}
	}
	for _, id := range d.NoRoom {
		if _, counted := known.refused[raiseOf(id)]; !counted {
			metrics.Escalations.WithLabelValues(metrics.ResultRefused).Inc()
		}
	}
	up, down := steps(n, known)
	metrics.Escalations.WithLabelValues(metrics.ResultRaised).Add(float64(len(up)))
	metrics.Recoveries.WithLabelValues().Add(float64(len(down)))
}

// testOn is the test by which a core's servers were admitted.
func (d *nodeDecision) testOn(core int) string {
	for _, p := range d.Plans {
		if p.Core == core {
			return p.Test
		}
	}
	return rt.TestT1
}

// eventObject is what an Event is about.
type eventObject struct {
	runtime.Object
	uid string
}

// runsIn is the pod of a server.
func runsIn(s *state.ServerView) eventObject {
	return eventObject{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Pod, UID: s.PodUID}}, string(s.PodUID)}
}

// about are Events on the pod of a server and on its McKube.
func about(s *state.ServerView, make func(on eventObject) events.Event) []events.Event {
	out := []events.Event{make(runsIn(s))}
	if s.McKube != nil {
		out = append(out, make(eventObject{s.McKube, string(s.McKube.UID)}))
	}
	return out
}

func where(n *state.NodeView, s *state.ServerView, core int) events.Where {
	return events.Where{Pod: s.Namespace + "/" + s.Pod, Container: s.Container, Node: n.Name, Core: core}
}

// placementEvents tell which container got a core, which one moved, and for which other container.
func placementEvents(n *state.NodeView, d nodeDecision, asked moves) []events.Event {
	var out []events.Event
	for _, change := range d.Changes {
		s, ok := n.Server(change.ID)
		if !ok || change.To == rt.NoCore {
			continue
		}
		at := where(n, s, change.To)
		if change.Reason == rt.ChangePlaced {
			pod := runsIn(s) // a McKube's status says where its pods are, as they come and go
			out = append(out, events.Placed(pod.Object, pod.uid, at, d.testOn(change.To)))
			continue
		}
		winner := beneficiary(n, d.Changes, change)
		why := whyMoved(change, winner, asked)
		out = append(out, about(s, func(on eventObject) events.Event {
			return events.Moved(on.Object, on.uid, at, change.From, why)
		})...)
		if winner != nil {
			out = append(out, about(winner, func(on eventObject) events.Event {
				return events.MadeRoom(on.Object, on.uid, at, change.From)
			})...)
		}
	}
	return out
}

// beneficiary is the server for which another one moves: the most critical of those that come to the core it leaves, or
// else of those that come to the node. It is nil when the server moves for no other.
func beneficiary(n *state.NodeView, changes []rt.Change, victim rt.Change) *state.ServerView {
	if victim.Reason != rt.ChangeDisplaced && victim.Reason != rt.ChangeReturned {
		return nil
	}
	var best *state.ServerView
	here := false
	for _, change := range changes {
		s, ok := n.Server(change.ID)
		comes := change.To == victim.From
		if !ok || change.ID == victim.ID || (!comes && change.Reason != rt.ChangePlaced) {
			continue
		}
		if best == nil || (comes && !here) || (comes == here && s.Criticality > best.Criticality) {
			best, here = s, comes
		}
	}
	return best
}

func whyMoved(change rt.Change, winner *state.ServerView, asked moves) string {
	switch {
	case winner != nil && change.Reason == rt.ChangeDisplaced:
		return fmt.Sprintf("container %s of pod %s/%s, of criticality %s, needs its room", winner.Container, winner.Namespace, winner.Pod, winner.Criticality)
	case winner != nil:
		return fmt.Sprintf("back to the core of its claim, so that container %s of pod %s/%s has a core", winner.Container, winner.Namespace, winner.Pod)
	case change.Reason == changeRearranged && asked.undoing:
		return fmt.Sprintf("back, because action %s is being undone", asked.action)
	case change.Reason == changeRearranged:
		return fmt.Sprintf("action %s asks for it", asked.action)
	case change.Reason == rt.ChangeLost:
		return "its core is gone or no longer passes the admission test with it"
	default:
		return "the servers of the node were packed anew"
	}
}

// unmovedEvents tell which containers an action could not move, once for each action.
func unmovedEvents(n *state.NodeView, known memory, d nodeDecision, asked moves) []events.Event {
	var out []events.Event
	for _, id := range slices.Sorted(maps.Keys(d.Unmoved)) {
		s, ok := n.Server(id)
		if _, told := known.refused[moveOf(asked, id)]; !ok || told {
			continue
		}
		why := fmt.Sprintf("core %d: %s", asked.to[id], d.Unmoved[id])
		out = append(out, about(s, func(on eventObject) events.Event {
			return events.MoveRefused(on.Object, on.uid, where(n, s, s.Physical), asked.action, why)
		})...)
	}
	return out
}

// refusalEvents tell who has no core, once for each reason.
func refusalEvents(n *state.NodeView, known memory, d nodeDecision) []events.Event {
	var out []events.Event
	for _, id := range slices.Sorted(maps.Keys(d.Refused)) {
		v := d.Refused[id]
		s, ok := n.Server(id)
		if !ok || known.refused[id] == v.Reason {
			continue
		}
		message := fmt.Sprintf("no core of node %s takes container %s: %s", n.Name, s.Container, v)
		if v.Test == rt.TestAMC && v.Reason == rt.ReasonResponseTime {
			message += "; the scheduler, which adds up bandwidths, cannot know response times: re-create the pod so that it finds another node"
		}
		out = append(out, about(s, func(on eventObject) events.Event {
			return events.Refused(on.Object, on.uid, v.Reason, message)
		})...)
	}
	return out
}

// steps are the servers that the agent has raised, and brought back to the low budget, since last told.
func steps(n *state.NodeView, known memory) (up, down []*state.ServerView) {
	for i := range n.Servers {
		s := &n.Servers[i]
		before, told := known.levels[s.ID]
		if !told || s.Applied == nil || s.Applied.BudgetUs == 0 {
			continue
		}
		was, is := before != v1alpha1.LevelLow, s.Applied.Level != v1alpha1.LevelLow
		switch {
		case !was && is:
			up = append(up, s)
		case was && !is:
			down = append(down, s)
		}
	}
	return up, down
}

func levelEvents(n *state.NodeView, known memory) []events.Event {
	up, down := steps(n, known)
	var out []events.Event
	for _, s := range up {
		out = append(out, about(s, func(on eventObject) events.Event {
			return events.Escalated(on.Object, where(n, s, s.Physical), s.Applied.Level)
		})...)
	}
	for _, s := range down {
		out = append(out, about(s, func(on eventObject) events.Event {
			return events.Recovered(on.Object, where(n, s, s.Physical))
		})...)
	}
	return out
}

// pressureEvents tell that a node became busy, and that everything raised for it was given back.
func pressureEvents(n *state.NodeView, known memory, d nodeDecision) []events.Event {
	node := nodeObject(n)
	switch {
	case d.Pressure.Busy && !known.pressure.Busy && !known.told:
		return []events.Event{events.Pressure(node, string(n.UID), raised(d.Spec))}
	case !d.Pressure.Busy && known.told && raised(d.Spec) == 0:
		return []events.Event{events.PressureOver(node, string(n.UID))}
	}
	return nil
}

// agentEvents tell that the agent has gone silent, or is heard of.
func agentEvents(n *state.NodeView, alive metav1.Condition) []events.Event {
	node := nodeObject(n)
	switch {
	case alive.Status == metav1.ConditionFalse:
		return []events.Event{events.AgentSilent(node, string(n.UID), alive.Message)}
	case alive.Status == metav1.ConditionTrue && n.Agent == state.AgentSilent:
		return []events.Event{events.AgentAlive(node, string(n.UID))}
	}
	return nil
}

func nodeObject(n *state.NodeView) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID}}
}

// measure replaces the series of the node.
func (c *nodes) measure(n *state.NodeView, d nodeDecision, alive bool) {
	m := metrics.Node{Alive: alive, GranularityUs: n.Measured}
	for _, p := range d.Plans {
		core, ok := n.Core(p.Core)
		if !ok {
			continue
		}
		m.Cores = append(m.Cores, metrics.Core{
			ID: core.ID, Capacity: int64(core.Capacity), Charged: charged(d.Spec, core.Core), InForce: inForce(n.RTNode, core.ID),
		})
	}
	for _, s := range n.Servers {
		if s.Applied != nil {
			m.Containers = append(m.Containers, metrics.Container{
				Namespace: s.Namespace, Pod: s.Pod, Container: s.Container,
				Overruns: s.Applied.Overruns, Misses: s.Applied.Misses, Drift: s.Applied.Drift,
			})
		}
	}
	metrics.Nodes.Set(n.Name, m)
}

// charged is what the admission test counts of the servers of a core.
func charged(spec v1alpha1.RTNodeSpec, core rt.Core) int64 {
	total := rt.PPM(0)
	for _, e := range spec.Servers {
		if slices.Contains(e.Cores, int32(core.ID)) {
			total += serverOf(e).Charge(core.Granularity)
		}
	}
	return int64(total)
}

func inForce(r *v1alpha1.RTNode, core int) int64 {
	if r == nil {
		return 0
	}
	for _, c := range r.Status.Cores {
		if int(c.ID) == core {
			return c.ReservedPpm
		}
	}
	return 0
}
