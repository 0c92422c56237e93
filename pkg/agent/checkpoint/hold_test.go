package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// rival adds a NodeCheckpoint of the same pod, to another node, and has the source's agent look at it.
func (p *pair) rival(name string) {
	p.t.Helper()
	p.api.mu.Lock()
	p.api.all[name] = &v1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: "default", PodName: "p", PodUID: "pod", SourceNode: "a", TargetNode: "c", Stage: v1alpha1.StageCheckpoint,
			Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}, {Name: "side"}}, Expires: metav1.NewTime(p.clock.Now().Add(time.Hour)),
		},
	}
	p.api.mu.Unlock()
	p.look(name)
}

// look has the source's agent look at a NodeCheckpoint.
func (p *pair) look(name string) {
	p.t.Helper()
	if _, err := p.source.keeper.Reconcile(p.t.Context(), name); err != nil {
		p.t.Fatal(err)
	}
}

// side is what the source's agent says of a NodeCheckpoint.
func (p *pair) side(name string) *v1alpha1.CheckpointSide {
	if nc := p.api.read(name); nc != nil && nc.Status.Source != nil {
		return nc.Status.Source
	}
	return &v1alpha1.CheckpointSide{}
}

// discard has a NodeCheckpoint discarded.
func (p *pair) discard(name string) {
	p.t.Helper()
	p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageDiscard })
	p.look(name)
}

// loseRecords takes away what the source's agent has on record.
func (p *pair) loseRecords() {
	p.t.Helper()
	for _, file := range p.left(p.source) {
		if strings.HasSuffix(file, ".json") {
			if err := os.Remove(file); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// A pod that stands still for one NodeCheckpoint does so for no other. The agent takes nothing of it for another one, and does
// not let it go on, however the other one ends.
func TestAPodStandsStillForOneNodeCheckpoint(t *testing.T) {
	for what, tc := range map[string]struct {
		ends func(*pair)
		says v1alpha1.CheckpointState
	}{
		"discarded": {func(p *pair) { p.discard("nc2") }, v1alpha1.CheckpointDiscarded},
		"expired":   {func(p *pair) { p.clock.Step(2 * time.Hour); p.look("nc2") }, v1alpha1.CheckpointDiscarded},
		"gone":      {func(p *pair) { delete(p.api.all, "nc2"); p.look("nc2"); p.source.keeper.Sweep(p.t.Context()) }, ""},
	} {
		for _, lost := range []bool{false, true} {
			p := besideACopy(t)
			written := p.source.node.written
			if lost {
				p.loseRecords()
			}
			p.rival("nc2")
			if side := p.side("nc2"); side.State != v1alpha1.CheckpointFailed || !strings.Contains(side.Message, "stands still already") ||
				!lost && !strings.Contains(side.Message, "for NodeCheckpoint nc") || p.source.node.written != written {
				t.Errorf("%s, lost %t: %d states were written, and the other says %+v", what, lost, p.source.node.written-written, side)
			}
			p.still()
			p.start(p.source)
			tc.ends(p)
			p.still()
			if side := p.side("nc2"); what != "expired" && side.State != tc.says || !lost && side.State == v1alpha1.CheckpointDiscarded &&
				!strings.Contains(side.Message, "the containers stand still for NodeCheckpoint nc:") {
				t.Errorf("%s, lost %t: the other says %+v", what, lost, side)
			}
			p.settle()
			p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
			p.stage(v1alpha1.StageDiscard)
			delete(p.api.all, "nc2")
			p.look("nc2")
			p.expectRunsOn()
			p.rival("nc3")
			if p.side("nc3").State != v1alpha1.CheckpointCheckpointed {
				t.Errorf("%s, lost %t: it is stopped for nobody, and the next one says %+v", what, lost, p.side("nc3"))
			}
		}
	}
}

// One that comes when its time is over already, and for which nothing was ever stopped, resumes nothing.
func TestANodeCheckpointThatComesTooLateResumesNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		p := besideACopy(t)
		if lost {
			p.loseRecords()
		}
		p.clock.Step(2 * time.Hour)
		p.api.mu.Lock()
		late := p.api.all[name].DeepCopy()
		late.Name, late.UID, late.Spec.Stage, late.Status = "nc2", "uid-nc2", v1alpha1.StageCheckpoint, v1alpha1.NodeCheckpointStatus{}
		p.api.all["nc2"] = late
		p.api.mu.Unlock()
		p.look("nc2")
		p.still()
		if got := p.side("nc2").State; got != v1alpha1.CheckpointDiscarded {
			t.Errorf("lost %t: the other is %s", lost, got)
		}
	}
}

// A NodeCheckpoint that has failed has given the pod back: the next one takes it, and the failed one neither resumes it nor removes its archives.
func TestANodeCheckpointThatFailedLeavesThePodToTheNext(t *testing.T) {
	p := newPair(t)
	p.source.node.nextErr = errors.New("the kubelet answers 500")
	p.settle()
	p.expect(v1alpha1.CheckpointFailed, "")
	p.source.node.nextErr = nil
	p.clock.SetTime(time.Now().Add(-time.Second / 2)) // files are dated by the real one
	p.rival("nc2")
	if got := p.side("nc2").State; got != v1alpha1.CheckpointCheckpointed {
		t.Fatalf("the next one is %+v", p.side("nc2"))
	}
	p.look(name)
	p.still()
	p.stage(v1alpha1.StageDiscard)
	p.still()
	if files, err := filepath.Glob(filepath.Join(p.source.config.Archives, "*")); err != nil || len(files) != 2 {
		t.Errorf("the next one's archives are %v, %v", files, err)
	}
	p.discard("nc2")
	p.expectRunsOn()
}

// Of two that come at once one takes the pod.
func TestOfTwoNodeCheckpointsOneTakesThePod(t *testing.T) {
	p := newPair(t)
	p.api.mu.Lock()
	p.api.all["nc2"] = p.api.all[name].DeepCopy()
	p.api.all["nc2"].Name, p.api.all["nc2"].UID = "nc2", "uid-nc2"
	p.api.mu.Unlock()
	var both sync.WaitGroup
	for _, name := range []string{name, "nc2"} {
		both.Go(func() {
			if _, err := p.source.keeper.Reconcile(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	states := map[v1alpha1.CheckpointState]int{p.side(name).State: 1}
	states[p.side("nc2").State]++
	if states[v1alpha1.CheckpointCheckpointed] != 1 || states[v1alpha1.CheckpointFailed] != 1 {
		t.Errorf("they say %+v and %+v", p.side(name), p.side("nc2"))
	}
	p.still()
}

// An agent that cannot read of which containers it was about to take the state lets go on what stands still. Once it has told that it has their state, a copy
// may be made of which it has not heard: it goes on.
func TestASourceWhoseRecordCannotBeRead(t *testing.T) {
	for _, told := range []v1alpha1.CheckpointState{"", v1alpha1.CheckpointWorking, v1alpha1.CheckpointCheckpointed} {
		p := newPair(t)
		p.settle()
		p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) {
			if nc.Status.Source.State = told; told == "" {
				nc.Status.Source = nil
			}
		})
		if err := os.WriteFile(filepath.Join(p.source.config.Dir, "0a-1b.source.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		old := p.now()
		p.start(p.source)
		if told == v1alpha1.CheckpointCheckpointed {
			p.source.keeper.Know(func(string) *v1alpha1.NodeCheckpoint { return old.DeepCopy() })
			p.stage(v1alpha1.StageRestore)
			p.still()
			p.start(p.source)
		} else {
			p.settle()
			p.expect(v1alpha1.CheckpointFailed, "")
		}
		p.stage(v1alpha1.StageDiscard)
		p.expectRunsOn()
	}
}

// A NodeCheckpoint that is over by the time at which the agent knows what the node can do stops nothing.
func TestANodeCheckpointThatIsOverBeforeAnythingIsStopped(t *testing.T) {
	for what, ends := range map[string]func(*pair){
		"discarded": func(p *pair) {
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageDiscard })
		},
		"deleted": func(p *pair) {
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.DeletionTimestamp = ptr.To(metav1.NewTime(p.clock.Now())) })
		},
		"expired": func(p *pair) { p.clock.Step(2 * time.Hour) },
		"gone":    func(p *pair) { delete(p.api.all, name) },
	} {
		p := newPair(t)
		p.source.node.asked = func() {
			p.source.node.asked = nil
			ends(p)
		}
		after, err := p.source.keeper.Reconcile(t.Context(), name)
		if err != nil || after <= 0 || after > time.Second {
			t.Errorf("%s: looked at again in %s, %v", what, after, err)
		}
		if p.api.fate.calls > 0 || p.source.node.anyPaused() {
			t.Errorf("%s: something was stopped or told: %v", what, p.source.node.paused)
		}
		p.settle()
		p.expectRunsOn()
		if what != "gone" {
			p.expect(v1alpha1.CheckpointDiscarded, "")
		}
	}
}

// What was written goes when it comes to nothing, though the record is lost, also of a container that has ended since.
func TestArchivesOfALostRecordGo(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.loseRecords()
	p.source.node.ends("app", "")
	p.source.node.paused["id-side"] = false
	p.stage(v1alpha1.StageDiscard)
	p.expectRunsOn()
}
