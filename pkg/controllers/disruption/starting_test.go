package disruption_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// A process that does not know yet which containers are real-time, or which actions are under way, closes no node for which either would be in the way.
func TestNothingIsClosedBeforeAllIsKnown(t *testing.T) {
	for name, start := range map[string]func(w *world){
		"containers": func(w *world) { w.starting = true; w.restart() },
		"actions":    func(w *world) { w.actions["starting"] = &v1alpha1.RTAction{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, statetest.Cores(1)...)
			w.node("a", "edge", statetest.Cores(1)...)
			w.pod("pod-a", "a", 20)
			w.node("b", "edge", statetest.Cores(1)...)
			w.drift("a")
			start(w)
			w.pass()
			if got := w.disrupted(); len(got) > 0 {
				t.Errorf("%v are being closed", got)
			}
			delete(w.actions, "starting")
			w.store.Complete()
			w.sync()
			w.pass()
			if got := w.disrupted(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("%v are being closed once all is known", got)
			}
		})
	}
}
