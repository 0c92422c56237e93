package checkpoint_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// besideACopy is a pair of which a pod may be at work with the state.
func besideACopy(t *testing.T) *pair {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.stage(v1alpha1.StageRestore)
	return p
}

// says expects that the source is checkpointed, how it did not stand still, and that none of its containers is at work.
func (p *pair) says(how v1alpha1.CheckpointDisturbance, words string) {
	p.t.Helper()
	p.expect(v1alpha1.CheckpointCheckpointed, "")
	if side := p.now().Status.Source; side.Disturbance != how || !strings.Contains(side.Message, words) || side.StoppedTime == nil {
		p.t.Errorf("it says %+v", side)
	}
	p.still()
}

// still expects that none of the containers that were stopped, or have begun in their place, is at work.
func (p *pair) still() {
	p.t.Helper()
	for _, name := range []string{"app", "side"} {
		if id := p.source.node.running[name]; id != "" && !p.source.node.paused[id] {
			p.t.Errorf("container %s (%s) is at work", name, id)
		}
	}
}

// Another client resumes a source while a pod may be at work with the state. The agent stops the source again, and tells of it,
// whichever side has heard of what, until that pod is gone or has proven itself. The source has its memory.
func TestASourceThatIsResumedBesideAPodThatWasRestored(t *testing.T) {
	for end, heard := range map[v1alpha1.CheckpointStage]bool{v1alpha1.StageDiscard: true, v1alpha1.StageRelease: true, v1alpha1.StageHandOver: false} {
		p := newPair(t)
		p.settle()
		p.stage(v1alpha1.StageTransfer)
		stopped := p.now().Status.Source.StoppedTime
		if old := p.now(); !heard {
			p.source.keeper.Know(func(string) *v1alpha1.NodeCheckpoint { return old.DeepCopy() })
		}
		p.stage(v1alpha1.StageRestore)
		p.source.node.paused["id-app"] = false
		p.settle()
		p.says(v1alpha1.CheckpointResumed, "container app: somebody else resumed")
		if !p.now().Status.Source.StoppedTime.Equal(stopped) {
			t.Errorf("it says %+v", p.now().Status.Source)
		}
		p.start(p.source) // and so says the agent that comes after it
		p.settle()
		p.says(v1alpha1.CheckpointResumed, "container app: somebody else resumed")
		p.stage(end)
		if end == v1alpha1.StageDiscard {
			p.expectRunsOn()
			continue
		}
		if p.now().Status.Source.State != v1alpha1.CheckpointReleased || len(p.left(p.source)) > 0 {
			t.Errorf("%s: it is %s", end, p.now().Status.Source.State)
		}
		p.still()
	}
}

// A source whose container has ended has no memory any longer, which is told apart. What the kubelet begins in its place is stopped before it does much,
// again and again, until the source goes; discarded, it runs.
func TestASourceThatEndsBesideAPodThatWasRestored(t *testing.T) {
	const words = "container app: it was to stay paused, and has ended"
	for _, end := range []v1alpha1.CheckpointStage{v1alpha1.StageDiscard, v1alpha1.StageRelease, v1alpha1.StageHandOver} {
		p := besideACopy(t)
		p.source.node.ends("app", "")
		p.settle()
		p.says(v1alpha1.CheckpointEnded, words)
		if after, err := p.source.keeper.Reconcile(t.Context(), name); err != nil || after > time.Second {
			t.Errorf("what begins anew is looked for in %s: %v", after, err)
		}
		for _, id := range []string{"id-app-2", "id-app-3"} {
			p.source.node.ends("app", id)
			p.once(p.source) // at its first look
			p.says(v1alpha1.CheckpointEnded, words)
		}
		p.source.node.paused["id-app-3"] = false // it is not what the source was
		p.start(p.source)
		p.settle()
		p.says(v1alpha1.CheckpointEnded, words)
		p.stage(end)
		if end == v1alpha1.StageDiscard {
			p.expectRunsOn()
			if side := p.now().Status.Source; side.Disturbance != v1alpha1.CheckpointEnded || !strings.Contains(side.Message, "begins anew") {
				t.Errorf("it says %+v", side)
			}
			continue
		}
		p.expect(v1alpha1.CheckpointReleased, "")
		p.source.node.ends("app", "id-app-4")
		p.settle()
		p.still()
	}
}

// What was in memory is whole in the archives of a source that ends before the target has them: they go on, also past an agent that is killed.
func TestASourceThatEndsBeforeItsStateIsOnTheTarget(t *testing.T) {
	for die := 0; ; die++ {
		p := newPair(t)
		p.settle()
		p.source.node.ends("app", "id-app-2")
		p.api.fate.calls, p.api.fate.die = 0, die
		p.settle()
		p.says(v1alpha1.CheckpointEnded, "container app")
		calls := p.api.fate.calls
		p.api.fate.die = 0
		p.stage(v1alpha1.StageTransfer)
		p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
		if die == 0 { // the controller does not come back: it begins anew, and says so
			p.clock.Step(2 * time.Hour)
			p.api.fate.calls, p.api.fate.die, p.api.fate.after = 0, 1, true // also where its agent is killed once it has said that
			p.settle()
			if side := p.now().Status.Source; side.State != v1alpha1.CheckpointDiscarded || side.Disturbance != v1alpha1.CheckpointEnded || p.source.node.anyPaused() {
				t.Errorf("it says %+v", side)
			}
		}
		p.source.stop()
		p.target.stop()
		if t.Failed() || die > calls {
			break
		}
	}
}

// A source that ends while its state is written has lost it, and says so; one that fails for anything else has not.
func TestASourceThatEndsWhileItsStateIsWritten(t *testing.T) {
	for _, ends := range []bool{true, false} {
		p := newPair(t)
		p.source.node.nextErr = errAway
		p.source.node.slow = func() {
			if ends {
				p.source.node.ends("app", "id-app-2")
			}
		}
		p.settle()
		p.expect(v1alpha1.CheckpointFailed, "")
		if got := p.now().Status.Source.Disturbance == v1alpha1.CheckpointEnded; got != ends || p.source.node.anyPaused() {
			t.Errorf("ended %t: it says %+v", ends, p.now().Status.Source)
		}
	}
}

// What is written of a side names each of its fields, so that none stays that was said before.
func TestWhatIsWrittenOfASideReplacesIt(t *testing.T) {
	data, err := checkpoint.PatchOf(checkpoint.Version{Name: name, UID: "0a-1b"}, checkpoint.Source, v1alpha1.CheckpointSide{State: v1alpha1.CheckpointWorking})
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Status map[string]map[string]any `json:"status"`
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.CheckpointSide]()) {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, named := patch.Status["source"][key]; !named {
			t.Errorf("%s is not named in %s", key, data)
		}
	}
}
