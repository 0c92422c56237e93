package checkpoint_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// undone are the ways in which the agent itself ends what it holds, and the state that it tells then.
var undone = map[v1alpha1.CheckpointState]func(*pair){
	v1alpha1.CheckpointDiscarded: func(p *pair) { p.clock.Step(2 * time.Hour) },
	v1alpha1.CheckpointFailed:    func(p *pair) { p.source.node.paused["id-app"] = false },
}

// spoken has each last word of the source's agent compared with what its containers do.
func (p *pair) spoken() {
	p.api.before = func(side v1alpha1.CheckpointSide) {
		if side.Settled() && side.State != v1alpha1.CheckpointReleased && p.source.node.anyPaused() {
			p.t.Errorf("it says %s %q, and paused are %v", side.State, side.Message, p.source.node.paused)
		}
	}
}

// What is decided before anything is resumed is the last word only once all runs on: until then the NodeCheckpoint stays, and says so, also past agents that
// end, records that are lost, and a controller that prolongs it unawares.
func TestASourceThatCannotBeResumedIsToldOf(t *testing.T) {
	for state, happens := range undone {
		for what, also := range map[string]func(*pair){
			"": func(*pair) {}, "lost": (*pair).loseRecords, "full": func(p *pair) { p.full(p.source, "source") },
			"prolonged": func(p *pair) {
				p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Expires = metav1.NewTime(p.clock.Now().Add(time.Hour)) })
			},
		} {
			p := newPair(t)
			p.settle()
			p.stage(v1alpha1.StageTransfer)
			p.spoken()
			p.source.node.stuck = errors.New("containerd does not answer")
			happens(p)
			if what == "full" {
				also(p)
			}
			for range 2 {
				if _, err := p.source.keeper.Reconcile(t.Context(), name); err == nil {
					t.Errorf("%s, %s: it is resumed", state, what)
				}
				if side := p.now().Status.Source; side.State != state || side.Settled() || !side.Pending {
					t.Errorf("%s, %s: it says %+v", state, what, side)
				}
				if what != "full" {
					also(p)
				}
				p.start(p.source)
			}
			if got := p.figures(p.source, "_stopped_pods"); what != "lost" && got != "1" {
				t.Errorf("%s, %s: %s pods stand still", state, what, got)
			}
			p.source.node.stuck = nil
			p.look(name)
			if side := p.now().Status.Source; side.State != state || !side.Settled() || p.source.node.anyPaused() {
				t.Errorf("%s, %s: it says %+v, and paused are %v", state, what, side, p.source.node.paused)
			}
		}
	}
}

// An agent that is killed while it gives back what it holds says its last word after the one that comes after it has done so.
func TestAgentsThatAreKilledWhileASourceIsResumed(t *testing.T) {
	for state, happens := range undone {
		for _, after := range []bool{false, true} {
			first, by := sampling.Stride(t, 3)
			for die := first; ; die += by {
				p := newPair(t)
				p.settle()
				p.stage(v1alpha1.StageTransfer)
				p.spoken()
				happens(p)
				p.api.fate.calls, p.api.fate.die, p.api.fate.after = 0, die, after
				for range 3 {
					p.once(p.source)
					if side := p.now().Status.Source; side.Settled() && p.source.node.anyPaused() {
						t.Errorf("killed at call %d, after it %t: it says %+v, and paused are %v", die, after, side, p.source.node.paused)
					}
				}
				switch side := p.now().Status.Source; {
				case side.State == v1alpha1.CheckpointCheckpointed && state == v1alpha1.CheckpointFailed: // it was paused again before anything was told
					p.still()
				case side.State != state || !side.Settled():
					t.Errorf("killed at call %d, after it %t: it says %+v", die, after, side)
				}
				calls := p.api.fate.calls
				p.api.fate.die = 0
				p.stage(v1alpha1.StageDiscard)
				p.expectRunsOn()
				p.source.stop()
				p.target.stop()
				if t.Failed() || calls < die {
					break
				}
			}
		}
	}
}

// Where nothing was stopped there is nothing to wait for.
func TestATimeThatIsOverBeforeAnythingIsStopped(t *testing.T) {
	p := newPair(t)
	p.clock.Step(2 * time.Hour)
	p.api.before = func(side v1alpha1.CheckpointSide) {
		if side.Pending {
			t.Errorf("it says %+v", side)
		}
	}
	p.settle()
	p.expect(v1alpha1.CheckpointDiscarded, v1alpha1.CheckpointDiscarded)
	if got := p.now().Status.Source.Message; !strings.Contains(got, "its time is over") {
		t.Errorf("it says %q", got)
	}
}
