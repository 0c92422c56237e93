package checkpoint_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// handedOver is a pair whose source is gone, or about to go, for good.
func handedOver(t *testing.T) *pair {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
	p.stage(v1alpha1.StageHandOver)
	return p
}

// The target looks for what is made of the state after the source has gone.
func TestTheStateOfASourceThatIsGoneIsKept(t *testing.T) {
	p := handedOver(t)
	p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointTransferred)
	if files := p.left(p.source); len(files) > 0 || !p.source.node.paused["id-app"] {
		t.Errorf("the source has %v, and paused are %v", files, p.source.node.paused)
	}
	p.source.node.running, p.source.node.paused = nil, map[string]bool{} // the kubelet has ended it
	p.start(p.target)
	p.target.node.restored = []containerd.Container{{Name: "app", ID: "id-new", RestoredFrom: "mainspring.local/checkpoint/0a-1b:app"}}
	p.settle()
	p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointTransferred)
	if got := p.now().Status.Target.Archives[0].Restored; got != "id-new" {
		t.Errorf("restored is %q", got)
	}
	p.stage(v1alpha1.StageRelease)
	p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointReleased)
}

// Whatever becomes of the NodeCheckpoint, the source never runs again. What the target has means its base image then, for the
// pod that was made of it.
func TestASourceThatWasHandedOverNeverRunsAgain(t *testing.T) {
	for what, ends := range map[string]func(*pair){
		"released": func(p *pair) { p.clock.Step(2 * time.Hour); p.settle(); p.stage(v1alpha1.StageRelease) },
		"deleted": func(p *pair) {
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.DeletionTimestamp = ptr.To(metav1.NewTime(p.clock.Now())) })
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := handedOver(t)
			ends(p)
			p.settle()
			p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointReleased)
			if !p.source.node.paused["id-app"] || !p.source.node.paused["id-side"] {
				t.Errorf("paused are %v", p.source.node.paused)
			}
			for image, means := range p.target.node.images {
				if means != "sha256:app example.test/app:1" {
					t.Errorf("image %s means %s", image, means)
				}
			}
			if files := append(p.left(p.source), p.left(p.target)...); len(files) > 0 {
				t.Errorf("still there: %v", files)
			}
		})
	}
}

// The agent kills a source that stays paused for good when the kubelet ends its pod, and no sooner: the kubelet would begin it anew.
func TestAStoppedSourceEndsWithItsPod(t *testing.T) {
	for what, c := range map[string]struct {
		stage         v1alpha1.CheckpointStage
		deleted, gone bool // for the API server
		terminating   bool // for the kubelet
		unlisted      bool
		forbidden     error
		killed        int
	}{
		"handed over, and its pod ends":              {stage: v1alpha1.StageHandOver, deleted: true, terminating: true, killed: 2},
		"released, and its pod ends":                 {stage: v1alpha1.StageRelease, deleted: true, terminating: true, killed: 2},
		"released, and its pod was deleted by force": {stage: v1alpha1.StageRelease, gone: true, unlisted: true, killed: 2},
		"released, and its pod is there":             {stage: v1alpha1.StageRelease},
		"the kubelet does not know of it yet":        {stage: v1alpha1.StageRelease, deleted: true},
		"nor of a deletion by force":                 {stage: v1alpha1.StageRelease, gone: true},
		"the kubelet was started anew":               {stage: v1alpha1.StageRelease, deleted: true, unlisted: true},
		"the kubelet forbids the question":           {stage: v1alpha1.StageRelease, gone: true, unlisted: true, forbidden: errors.New("forbidden")},
		"it may run on yet":                          {stage: v1alpha1.StageRestore, deleted: true, terminating: true},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t)
			p.settle()
			p.stage(v1alpha1.StageTransfer)
			p.stage(c.stage)
			node := p.source.node
			p.api.deleted, p.api.gone = c.deleted, c.gone
			node.terminating, node.unlisted, node.forbidden = c.terminating, c.unlisted, c.forbidden
			p.settle()
			if len(node.killed) != c.killed || node.ranWhenKilled {
				t.Errorf("killed are %v; one was not paused then: %v", node.killed, node.ranWhenKilled)
			}
			if c.killed == 0 && (!node.paused["id-app"] || !node.paused["id-side"]) {
				t.Errorf("paused are %v", node.paused)
			}
		})
	}
}

// An agent that has not heard of it asks, before it believes that its time is over.
func TestASourceWhoseAgentHasNotHeardOfItStaysStopped(t *testing.T) {
	for _, stage := range []v1alpha1.CheckpointStage{v1alpha1.StageRestore, v1alpha1.StageHandOver} {
		p := newPair(t)
		p.settle()
		p.stage(v1alpha1.StageTransfer)
		old := p.now()
		p.source.keeper.Know(func(string) *v1alpha1.NodeCheckpoint { return old.DeepCopy() })
		p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = stage })
		p.clock.Step(2 * time.Hour)
		p.once(p.source)
		if !p.source.node.paused["id-app"] {
			t.Errorf("%s: the source was resumed, though another pod may have its state", stage)
		}
	}
}

// While a pod may be at work with the state neither time nor a deletion lets the source run on. Only the controller does, once
// it has taken that pod away.
func TestNoSourceRunsBesideAPodThatWasRestored(t *testing.T) {
	for what, happens := range map[string]func(*pair){
		"expired": func(p *pair) { p.clock.Step(2 * time.Hour) },
		"deleted": func(p *pair) {
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.DeletionTimestamp = ptr.To(metav1.NewTime(p.clock.Now())) })
		},
	} {
		p := newPair(t)
		p.settle()
		p.stage(v1alpha1.StageTransfer)
		p.stage(v1alpha1.StageRestore)
		happens(p)
		p.settle()
		p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
		if !p.source.node.paused["id-app"] || len(p.target.node.images) != 2 {
			t.Errorf("%s: paused are %v, images %v", what, p.source.node.paused, p.target.node.images)
		}
		p.stage(v1alpha1.StageDiscard)
		p.expectRunsOn()
	}
}

// An agent that has lost its record takes no second state of a source beside which a pod may be at work with the first.
func TestASourceWithoutARecord(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	p.stage(v1alpha1.StageRestore)
	before := p.source.node.written
	for _, file := range p.left(p.source) {
		if strings.HasSuffix(file, ".json") {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.settle()
	if p.source.node.written != before || !p.source.node.paused["id-app"] {
		t.Errorf("%d states were written, and paused are %v", p.source.node.written, p.source.node.paused)
	}
}

// A target without the image that the containers were made of, be it that it has another one of its name, says so before anything is made of their state.
func TestATargetWithoutTheImage(t *testing.T) {
	for _, has := range [][]string{nil, {"example.test/app:1", "sha256:other"}} {
		p := newPair(t)
		p.target.node.has = has
		p.settle()
		p.stage(v1alpha1.StageTransfer)
		p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointFailed)
		if got := p.now().Status.Target.Message; !strings.Contains(got, "this node has no image sha256:app, example.test/app:1") {
			t.Errorf("it says %q", got)
		}
		p.stage(v1alpha1.StageDiscard)
		p.expectRunsOn()
	}
}

// A target that has lost the state says so.
func TestATargetWithoutTheState(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageHandOver)
	p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointFailed)
}

func TestAgentsThatAreKilledWhileASourceIsHandedOver(t *testing.T) {
	for _, after := range []bool{false, true} {
		first, by := sampling.Stride(t, 3)
		for die := first; ; die += by {
			p := newPair(t)
			p.settle()
			p.stage(v1alpha1.StageTransfer)
			p.stage(v1alpha1.StageRestore)
			p.api.fate.calls, p.api.fate.die, p.api.fate.after = 0, die, after
			p.stage(v1alpha1.StageHandOver)
			p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointTransferred)
			p.stage(v1alpha1.StageRelease)
			p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointReleased)
			p.source.stop()
			p.target.stop()
			if !p.source.node.paused["id-app"] || t.Failed() {
				t.Fatalf("killed at call %d, after it: %v: paused are %v", die, after, p.source.node.paused)
			}
			if p.api.fate.calls < die {
				break
			}
		}
	}
}
