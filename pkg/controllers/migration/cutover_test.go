package migration_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// The controller keeps the NodeCheckpoint until a deleted source has ended, as its agent kills the source by it. It does not wait long for a
// source that stays, as for a finalizer.
func TestASourceThatStaysAfterItsDeletion(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	w.rollout(1)
	w.able()
	source := w.pods()[0]
	source.Finalizers = []string{"example.test/slow"}
	w.must(w.api.Update(t.Context(), &source))
	w.asks(source.Name, by("Checkpoint"))
	p, waited := w.start(), 0
	p.turns(200, func() bool {
		if strings.Contains(w.move().Status.Message, "waits until the source, which is deleted, has ended") {
			waited++
			list := &v1alpha1.NodeCheckpointList{}
			w.must(w.api.List(t.Context(), list))
			if len(list.Items) != 1 {
				t.Errorf("there are %d NodeCheckpoints", len(list.Items))
			}
		}
		return w.move().Status.Phase.Over()
	})
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceeded || waited == 0 || waited > 20 {
		t.Errorf("waited for %d turns; it is %s: %s; %s", waited, o.Status.Phase, o.Status.Message, w.everyone())
	}
	w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(&source), &source))
	source.Finalizers = nil
	w.must(w.api.Update(t.Context(), &source))
}
