package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// full has a side's agent write no record of the pair's NodeCheckpoint, until there is room.
func (p *pair) full(s *side, role checkpoint.Role) (room func()) {
	p.t.Helper()
	path := filepath.Join(s.config.Dir, "0a-1b."+string(role)+".json.new")
	if err := os.Mkdir(path, 0o700); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.t.Fatal(err)
		}
	}
}

// No full disk lets a source run beside a copy, or keeps from the controller how it did not stand still; nor does it keep what was stopped from running on.
func TestAFullDiskBesideAPodThatWasRestored(t *testing.T) {
	for how, happens := range map[v1alpha1.CheckpointDisturbance]func(*pair){
		v1alpha1.CheckpointEnded:   func(p *pair) { p.source.node.ends("app", "id-app-2") },
		v1alpha1.CheckpointResumed: func(p *pair) { p.source.node.paused["id-app"] = false },
	} {
		for _, early := range []bool{true, false} { // before the agent has heard of the copy, or after that
			for _, end := range []v1alpha1.CheckpointStage{v1alpha1.StageDiscard, v1alpha1.StageRelease} {
				p := newPair(t)
				p.settle()
				p.stage(v1alpha1.StageTransfer)
				room := func() {}
				if early {
					room = p.full(p.source, checkpoint.Source)
				}
				p.stage(v1alpha1.StageRestore)
				if !early {
					room = p.full(p.source, checkpoint.Source)
				}
				happens(p)
				for range 3 {
					p.once(p.source)
					p.says(how, "container app")
				}
				p.start(p.source)
				p.settle()
				p.says(how, "container app")
				p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = end })
				p.once(p.source)
				p.once(p.target)
				room()
				if end == v1alpha1.StageDiscard {
					p.expectRunsOn()
					continue
				}
				p.expect(v1alpha1.CheckpointReleased, "")
				p.still()
			}
		}
	}
}

// What is known of a source comes to disk once there is room.
func TestADiskThatHasRoomAgain(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.stage(v1alpha1.StageTransfer)
	room := p.full(p.source, checkpoint.Source)
	p.stage(v1alpha1.StageRestore)
	p.source.node.ends("app", "id-app-2")
	p.once(p.source)
	room()
	p.once(p.source)
	p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Status.Source = nil })
	p.start(p.source)
	p.once(p.source)
	p.says(v1alpha1.CheckpointEnded, "container app")
	delete(p.api.all, name) // removed by force: that a pod may have been made of it is known, too
	p.once(p.source)
	p.still()
}

// A target with a full disk tells what was restored: the copy would else be taken away.
func TestAFullDiskOfTheTarget(t *testing.T) {
	p := besideACopy(t)
	room := p.full(p.target, checkpoint.Target)
	p.target.node.restored = []containerd.Container{{Name: "app", ID: "id-new", RestoredFrom: "mainspring.local/checkpoint/0a-1b:app"}}
	p.once(p.target)
	p.once(p.target)
	if got := p.now().Status.Target.Archives[0].Restored; got != "id-new" {
		t.Errorf("restored is %q", got)
	}
	room()
	p.once(p.target)
	p.once(p.target)
	if got := p.figures(p.target, "_restored_total"); got != "1" {
		t.Errorf("%s are counted", got)
	}
}
