package migration_test

import (
	"sync"
	"testing"

	"github.com/mainspring-rt/mainspring/charts"
)

// unguard has nothing keep owners from making pods, and waits until the API server has forgotten what did.
func (w *town) unguard() {
	w.Helper()
	policy, binding, err := charts.Heirs()
	w.must(err)
	o := w.asks("probe")
	w.becomesKept(o, "probe", true) // so that it is known of when it is kept no longer
	w.must(w.api.Delete(w.Context(), binding))
	w.becomesKept(o, "probe", false)
	w.must(w.api.Delete(w.Context(), o))
	w.must(w.api.Delete(w.Context(), policy))
	guarded = sync.Once{}
}

// Where nothing keeps the owner from making the pod anew nothing is stopped; where nothing does so any longer by the time that the source is to be evicted, that goes on.
func TestAnOwnerThatIsNotKept(t *testing.T) {
	for _, late := range []bool{false, true} {
		stopped := false
		w := journey{
			town: func(w *town) {
				w.Cleanup(w.house("StatefulSet").expectNothingLeft)
				if !late {
					w.unguard()
				}
			},
			ask: ask("Checkpoint"),
			during: func(w *town) func(int, *process) {
				if late {
					return onceStored((*town).unguard)(w)
				}
				return func(int, *process) { stopped = stopped || len(w.agents.stopped) > 0 }
			},
			phase: "RolledBack", says: "nothing keeps StatefulSet house from making the pod anew", places: "a",
		}.tell(t, 0, false)
		if stopped || len(w.evicted) > 0 {
			t.Errorf("late %t: the pod was stopped: %t; evicted %v", late, stopped, w.evicted)
		}
	}
}
