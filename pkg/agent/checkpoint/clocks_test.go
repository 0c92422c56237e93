package checkpoint_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// An agent whose clock is ahead holds that the time is over, while the controller, by whose clock it is not, has a copy made: one of both is refused.
func TestClocksDoNotDecideWhichPodRuns(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.clock.Step(2 * time.Hour)
	p.api.before = func(side v1alpha1.CheckpointSide) {
		if side.State == v1alpha1.CheckpointDiscarded {
			p.api.before = nil
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageRestore })
		}
	}
	if _, err := p.source.keeper.Reconcile(t.Context(), name); err == nil {
		t.Error("it was not refused")
	}
	p.settle()
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
	if !p.source.node.paused["id-app"] || !p.source.node.paused["id-side"] {
		t.Errorf("paused are %v beside a copy", p.source.node.paused)
	}
	p.stage(v1alpha1.StageDiscard)
	p.expectRunsOn()
}

// The source's agent finds that a container did not stay paused, while the controller has a copy made: one of both is refused, and the others stay paused
// beside a copy.
func TestASourceIsNotLetGoWhileACopyIsMade(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.source.node.paused["id-app"] = false
	p.api.before = func(side v1alpha1.CheckpointSide) {
		if side.State == v1alpha1.CheckpointFailed {
			p.api.before = nil
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageRestore })
		}
	}
	if _, err := p.source.keeper.Reconcile(t.Context(), name); err == nil {
		t.Error("it was not refused")
	}
	p.settle()
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
	if !p.source.node.paused["id-side"] {
		t.Errorf("paused are %v beside a copy", p.source.node.paused)
	}
	p.stage(v1alpha1.StageDiscard)
	p.expectRunsOn()
}
