package checkpoint_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A source is looked at when its time is over, not some seconds later: its liveness probe would end it. It says that it runs on, and nothing is left.
func TestASourceRunsOnAtTheEndOfItsTime(t *testing.T) {
	for _, stage := range []v1alpha1.CheckpointStage{v1alpha1.StageCheckpoint, v1alpha1.StageTransfer} {
		p := newPair(t)
		began := p.clock.Now()
		p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) {
			nc.Spec.Expires, nc.Spec.Stage = metav1.NewTime(began.Add(16*time.Second)), stage
		})
		looks := 0
		for paused := true; paused && looks < 50; looks++ {
			after, err := p.source.keeper.Reconcile(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if paused = p.source.node.anyPaused(); paused {
				p.clock.Step(after)
			}
		}
		if stood := p.clock.Since(began); stood != 16*time.Second {
			t.Errorf("%s: it stood still for %s, want 16 s", stage, stood)
		}
		p.expect(v1alpha1.CheckpointDiscarded, "")
		if got := p.now().Status.Source.Message; got != "the containers run on: its time is over" {
			t.Errorf("%s: it says %q", stage, got)
		}
		if files := p.left(p.source); len(files) > 0 {
			t.Errorf("%s: still there: %v", stage, files)
		}
	}
}
