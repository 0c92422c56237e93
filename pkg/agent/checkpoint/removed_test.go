package checkpoint_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// restoring is a pair of whose state a pod may have been made.
func restoring(t *testing.T) *pair {
	t.Helper()
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.stage(v1alpha1.StageRestore)
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
	return p
}

// A user removes the finalizer of a NodeCheckpoint while a pod may be at work with the state. The source stands still for as
// long as that pod is there, or may be about to be made, and then runs on.
func TestANodeCheckpointThatIsRemovedByForce(t *testing.T) {
	p := restoring(t)
	p.api.copied = true
	delete(p.api.all, name)
	for range 5 {
		p.once(p.source)
		p.source.keeper.Sweep(t.Context())
		p.clock.Step(time.Minute)
	}
	if !p.source.node.paused["id-app"] || !p.source.node.paused["id-side"] {
		t.Fatalf("paused are %v beside a copy", p.source.node.paused)
	}
	p.api.copied = false
	p.source.keeper.Sweep(t.Context())
	p.clock.Step(time.Minute)
	p.start(p.source)
	p.source.keeper.Sweep(t.Context())
	if !p.source.node.paused["id-app"] {
		t.Error("it runs while a copy may be about to be made")
	}
	p.clock.Step(time.Minute)
	p.source.keeper.Sweep(t.Context())
	p.target.keeper.Sweep(t.Context())
	p.target.keeper.Sweep(t.Context())
	p.expectRunsOn()
}

// An agent that has not heard of a copy asks for it.
func TestANodeCheckpointThatIsRemovedByForceUnheard(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.api.copied = true
	delete(p.api.all, name)
	p.once(p.source)
	if !p.source.node.paused["id-app"] {
		t.Error("it runs beside a copy")
	}
	p.source.node.running = nil // it has ended: nothing is held for it
	p.once(p.source)
	if files := p.left(p.source); len(files) > 0 {
		t.Errorf("still there: %v", files)
	}
}

// A source runs on when it comes to nothing, also when its agent has lost what it knew of it, or cannot read that.
func TestASourceWhoseRecordIsLostRunsOn(t *testing.T) {
	for what, spoil := range map[string]func(string) error{
		"lost":       os.Remove,
		"unreadable": func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) },
	} {
		p := restoring(t)
		for _, file := range p.left(p.source) {
			if strings.HasSuffix(file, ".json") {
				if err := spoil(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.start(p.source)
		p.settle()
		if !p.source.node.paused["id-app"] {
			t.Errorf("%s: it runs beside a copy", what)
		}
		p.stage(v1alpha1.StageDiscard)
		p.expectRunsOn()
		p.expect(v1alpha1.CheckpointDiscarded, v1alpha1.CheckpointDiscarded)
	}
}

// A target keeps the state, and gives it back in the end, also when its agent has lost what it knew of it, or cannot read that.
func TestATargetWhoseRecordIsLostKeepsTheState(t *testing.T) {
	for what, spoil := range map[string]func(string) error{
		"lost":       os.Remove,
		"unreadable": func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) },
	} {
		for _, stage := range []v1alpha1.CheckpointStage{v1alpha1.StageRestore, v1alpha1.StageHandOver, v1alpha1.StageDiscard} {
			p := newPair(t)
			p.settle()
			p.stage(v1alpha1.StageTransfer)
			p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
			for _, file := range p.left(p.target) {
				if strings.HasSuffix(file, ".json") {
					if err := spoil(file); err != nil {
						t.Fatal(err)
					}
				}
			}
			p.start(p.target)
			p.stage(stage)
			if stage == v1alpha1.StageDiscard {
				p.expectRunsOn()
				continue
			}
			if nc := p.now(); nc.Status.Target.State != v1alpha1.CheckpointTransferred || len(nc.Status.Target.Archives) != 2 || len(p.target.node.images) != 2 {
				t.Fatalf("%s, at %s: the target is %+v, and has %v", what, stage, nc.Status.Target, p.target.node.images)
			}
			p.stage(v1alpha1.StageRelease)
			p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointReleased)
			if files := p.left(p.target); len(files) > 0 || len(p.target.node.images) > 0 {
				t.Errorf("%s, at %s: still there: %v, %v", what, stage, files, p.target.node.images)
			}
		}
	}
}

// What is not there any longer is not told to be.
func TestATargetThatHasLostRecordAndState(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	for _, file := range p.left(p.target) {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
	clear(p.target.node.images)
	p.start(p.target)
	p.stage(v1alpha1.StageHandOver)
	p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointFailed)
}
