package disruption_test

import (
	"context"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// expectHeld expects so many nodes to be kept, by reason, and none for another.
func (w *world) expectHeld(want map[string]float64) {
	w.Helper()
	for _, reason := range []string{"ActionInFlight", "ContainerEscalated", "NoCoreElsewhere", "HighContainer", "PodMayNotBeEvicted"} {
		m := &dto.Metric{}
		w.must(metrics.DisruptionHeld.WithLabelValues(reason).Write(m))
		if got := m.GetGauge().GetValue(); got != want[reason] {
			w.Errorf("%v nodes are kept for reason %s, want %v", got, reason, want[reason])
		}
	}
}

// A node that is kept at the last moment is tainted all the while: that it is is served, for whichever reason, until the node may go.
func TestANodeThatIsKeptFromBeingDeletedIsServed(t *testing.T) {
	w, _, answer := ready(t, byBudget)
	w.expectHeld(nil)
	w.carry("old")
	if w.closing("old") || !tainted(w.live("old")) {
		t.Fatal("the node is not kept, or not tainted: this shows nothing")
	}
	w.expectHeld(map[string]float64{"PodMayNotBeEvicted": 1})
	w.pass()
	w.expectHeld(map[string]float64{"PodMayNotBeEvicted": 1})
	*answer = nil
	cordon := func(is bool) {
		node := w.live(w.opened()[0])
		node.Spec.Unschedulable = is
		w.must(w.client.Update(w.ctx, node))
		w.sync()
		w.clock.Step(2 * time.Second)
		w.carry("old")
	}
	cordon(true)
	w.expectHeld(map[string]float64{"NoCoreElsewhere": 1})
	cordon(false)
	if !w.closing("old") {
		t.Fatal("there is room, and the node is not closed")
	}
	w.expectHeld(nil)
}

// Nor does the metric count it once the node is not to be closed any longer: the command was given up, or was taken back.
func TestANodeThatIsNoLongerToBeDeletedIsNotKept(t *testing.T) {
	for name, end := range map[string]func(*world){
		"given up":   func(w *world) { w.clock.Step(11 * time.Minute); w.carry("old") },
		"taken back": func(w *world) { w.withdraw("replace-1"); w.step("replace-1") },
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _ := ready(t, byBudget)
			w.carry("old")
			w.expectHeld(map[string]float64{"PodMayNotBeEvicted": 1})
			end(w)
			if len(w.disrupted()) != 0 {
				t.Fatalf("%v are still being closed", w.disrupted())
			}
			w.pass()
			w.expectHeld(nil)
		})
	}
}

// Karpenter's queue tries four times in a row, each second: one look is enough for all four.
func TestWhetherANodeIsKeptIsNotAskedAtEachTry(t *testing.T) {
	w, node, stays, newPod := consolidated(t)
	looks := 0
	w.dependencies.Gate.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok {
				looks++
			}
			return c.List(ctx, list, options...)
		},
	})
	w.carry(node)
	if looks == 0 {
		t.Fatal("it does not look at the pods of the node: this shows nothing")
	}
	first := looks
	w.carry(node)
	if w.closing(node) || looks > first {
		t.Errorf("it looks %d times, and once more at once", looks)
	}
	w.leaves(newPod, stays, 40)
	w.carry(node)
	if !w.closing(node) || looks == first {
		t.Error("it does not look again when a second has passed")
	}
}
