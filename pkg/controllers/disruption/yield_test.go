package disruption_test

import (
	"testing"

	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// closes is a world in which consolidation is closing a node on which a container has a raised budget.
func closes(t *testing.T) (w *world, node string) {
	t.Helper()
	w = consolidating(t)
	for _, name := range []string{"a", "b"} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, 20)
	}
	w.pass()
	closed := w.disrupted()
	if len(closed) != 1 {
		t.Fatalf("consolidation closes %v, want one of two half empty nodes", closed)
	}
	w.budget(closed[0], 20_000)
	return w, closed[0]
}

// waits has an action wait for consolidation to let go of a node.
func (w *world) waits(kind v1alpha1.ActionKind, reason, node string) *v1alpha1.RTAction {
	a := &v1alpha1.RTAction{}
	a.Name, a.Spec.Kind, a.Spec.Reason, a.Spec.Node = "waits-1", kind, reason, node
	a.Status.Phase, a.Status.WaitingFor = "Waiting", "NodeBeingDisrupted"
	w.actions[a.Name] = a
	return a
}

// otherwise is a method that says another reason.
type otherwise struct {
	karpdisruption.Method
	reason karpv1.DisruptionReason
}

func (o otherwise) Reason() karpv1.DisruptionReason { return o.reason }

// called has the commands under way be for another reason.
func (w *world) called(reason karpv1.DisruptionReason) {
	for _, command := range w.queue.GetCommands() {
		command.Method = otherwise{command.Method, reason}
	}
}

// A raised budget keeps the node from being deleted, and the command keeps the action from beginning that would end it: consolidation gives way, at
// once, and does not come back for the same while the action waits for its turn.
func TestConsolidationGivesWayToPressure(t *testing.T) {
	for _, kind := range []v1alpha1.ActionKind{"Preempt", "ReplaceNode"} {
		t.Run(string(kind), func(t *testing.T) {
			w, node := closes(t)
			action := w.waits(kind, "RTPressure", node)
			if w.loop.Follow(action); !w.trigger.Pending() {
				t.Error("the trigger is not pending")
			}
			w.carry(node)
			w.pass()
			if got := w.disrupted(); len(got) != 0 {
				t.Fatalf("%v are being closed", got)
			}
			w.expectUntouched(node)
			if !w.said("ActionInFlight: action waits-1 waits for node " + node) {
				t.Errorf("it is not told: %q", w.messages())
			}
			action.Status.WaitingFor = "PodDisruptionBudget"
			w.budget(node, 10_000)
			w.cluster.MarkUnconsolidated()
			w.pass()
			if got := w.disrupted(); len(got) == 1 && got[0] == node {
				t.Errorf("%v is being closed again", got)
			}
		})
	}
}

// Nothing gives way to what only comes to the node, or is not urgent, and neither repair nor what replaces the node for its pressure does.
func TestNothingElseGivesWay(t *testing.T) {
	for name, wait := range map[string]func(w *world, node string) *v1alpha1.RTAction{
		"a migration":   func(w *world, node string) *v1alpha1.RTAction { return w.waits("Migrate", "RTPressure", node) },
		"a pending pod": func(w *world, node string) *v1alpha1.RTAction { return w.waits("Preempt", "NoCore", node) },
		"another node":  func(w *world, _ string) *v1alpha1.RTAction { return w.waits("Preempt", "RTPressure", "elsewhere") },
		"repair": func(w *world, node string) *v1alpha1.RTAction {
			w.called(karpv1.DisruptionReasonUnhealthy)
			return w.waits("Preempt", "RTPressure", node)
		},
		"a replacement": func(w *world, node string) *v1alpha1.RTAction {
			w.called("RTPressure")
			return w.waits("Preempt", "RTPressure", node)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, node := closes(t)
			if w.loop.Follow(wait(w, node)); w.trigger.Pending() {
				t.Error("the trigger is pending")
			}
			w.pass()
			if got := w.disrupted(); len(got) != 1 || got[0] != node {
				t.Errorf("%v are being closed, want %s", got, node)
			}
		})
	}
}

// In a NodePool with a fixed number of nodes no action replaces one, and drift does not give way for that; it does for others.
func TestStaticDriftGivesWayToWhatCanBeDone(t *testing.T) {
	for kind, want := range map[v1alpha1.ActionKind]int{"ReplaceNode": 1, "Preempt": 0} {
		t.Run(string(kind), func(t *testing.T) {
			w := begin(t, statetest.Cores(1)...)
			w.fix(2)
			for _, name := range []string{"a", "b"} {
				w.node(name, "edge", statetest.Cores(1)...)
				w.pod("pod-"+name, name, 20)
			}
			w.drift("a")
			w.pass()
			w.expectClosing("a")
			action := w.waits(kind, "RTPressure", "a")
			if w.loop.Follow(action); w.trigger.Pending() != (want == 0) {
				t.Errorf("the trigger is pending: %t", w.trigger.Pending())
			}
			w.pass()
			if got := w.disrupted(); len(got) != want {
				t.Errorf("%v are being closed, want %d", got, want)
			}
		})
	}
}

// fix has the NodePool have a fixed number of nodes, of machines with cores.
func (w *world) fix(nodes int64) {
	w.Helper()
	w.cloud.InstanceTypes = w.cloud.InstanceTypes[1:]
	w.ctx = options.ToContext(w.ctx, karptest.Options(karptest.OptionsFields{FeatureGates: karptest.FeatureGates{StaticCapacity: ptr.To(true)}}))
	w.must(w.client.Delete(w.ctx, w.pool))
	w.pool.ResourceVersion, w.pool.UID, w.pool.Finalizers = "", "", nil
	w.pool.Spec.Replicas, w.pool.Spec.Weight, w.pool.Spec.Limits, w.pool.Spec.Disruption.ConsolidationPolicy = &nodes, nil, nil, ""
	w.create(w.pool)
	w.restart()
}
