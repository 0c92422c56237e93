package checkpoint_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// While the runtime writes or takes a state, which has no progress that could be seen, the agents tell that they are at it.
func TestLongDumpsAndImportsGoOn(t *testing.T) {
	p := newPair(t)
	beats := func() {
		for range 3 {
			before, deadline := p.api.progressed.Load(), time.Now().Add(time.Minute)
			for p.api.progressed.Load() == before && time.Now().Before(deadline) {
				p.clock.Step(time.Second)
				<-time.After(time.Millisecond) // the clock goes on no faster than the goroutine that looks at it
			}
		}
	}
	p.source.node.slow = beats
	p.once(p.source)
	p.source.node.slow = nil
	if p.api.progressed.Load() < 3 {
		t.Error("the source tells nothing")
	}
	p.settle()
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointWorking)
	before := p.api.progressed.Load()
	p.target.node.slow = beats
	p.stage(v1alpha1.StageTransfer)
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
	if p.api.progressed.Load() < before+3 {
		t.Error("the target tells nothing")
	}
}
