package checkpoint_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

const name = "nc"

// pair is two nodes with their agents, and one NodeCheckpoint from the one to the other.
type pair struct {
	t              *testing.T
	api            *fakeAPI
	clock          *clocktesting.FakeClock
	source, target *side
}

// side is one of them.
type side struct {
	node   *fakeNode
	keeper *checkpoint.Keeper
	config checkpoint.Config
	stop   func()
}

func newPair(t *testing.T) *pair {
	t.Helper()
	f := &fate{}
	p := &pair{t: t, clock: clocktesting.NewFakeClock(time.Now().Add(-time.Second))}
	p.api = &fakeAPI{fate: f, all: map[string]*v1alpha1.NodeCheckpoint{name: {
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "0a-1b", CreationTimestamp: metav1.NewTime(p.clock.Now())},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: "default", PodName: "p", PodUID: "pod", SourceNode: "a", TargetNode: "b", Stage: v1alpha1.StageCheckpoint,
			Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}, {Name: "side"}}, Expires: metav1.NewTime(p.clock.Now().Add(time.Hour)),
		},
	}}}
	p.source, p.target = p.node("a", f), p.node("b", f)
	p.source.node.running = map[string]string{"app": "id-app", "side": "id-side", "other": "id-other"}
	return p
}

func (p *pair) node(name string, f *fate) *side {
	p.t.Helper()
	dir := p.t.TempDir()
	archives := filepath.Join(dir, "kubelet", "checkpoints")
	if err := os.MkdirAll(archives, 0o700); err != nil {
		p.t.Fatal(err)
	}
	s := &side{node: newFakeNode(archives, f)}
	s.config = checkpoint.Config{
		Node: name, API: p.api, Driver: s.node, Dir: filepath.Join(dir, "state"), Archives: archives, Clock: p.clock, Log: logr.Discard(),
	}
	p.start(s)
	return s
}

// start begins an agent's life, with a new key.
func (p *pair) start(s *side) {
	p.t.Helper()
	if s.stop != nil {
		s.stop()
	}
	listener, err := (&net.ListenConfig{}).Listen(p.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	s.config.Listener, s.config.Address = listener, listener.Addr().String()
	if s.keeper, err = checkpoint.New(s.config); err != nil {
		p.t.Fatal(err)
	}
	s.keeper.Know(p.api.read)
	ctx, cancel := context.WithCancel(p.t.Context())
	ended, keeper := make(chan struct{}), s.keeper
	go func() { defer close(ended); _ = keeper.Serve(ctx) }()
	s.stop = func() { cancel(); <-ended }
	p.t.Cleanup(s.stop)
}

// once lets an agent work; a death that was decreed ends it, and it is started anew.
func (p *pair) once(s *side) (died bool) {
	p.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, errKilled) {
				panic(r)
			}
			died = true
			p.start(s)
		}
	}()
	if _, err := s.keeper.Reconcile(p.t.Context(), name); err != nil && !p.api.away {
		p.t.Fatal(err)
	}
	return false
}

// settle lets both work until nothing changes any longer, while time passes.
func (p *pair) settle() {
	p.t.Helper()
	defer p.pass(time.Second)()
	for range 8 {
		p.once(p.source)
		p.once(p.target)
	}
}

func (p *pair) stage(s v1alpha1.CheckpointStage) {
	p.t.Helper()
	p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = s })
	p.settle()
}

func (p *pair) now() *v1alpha1.NodeCheckpoint { return p.api.read(name) }

// expect compares the states of both sides.
func (p *pair) expect(source, target v1alpha1.CheckpointState) {
	p.t.Helper()
	nc := p.now()
	if nc.Status.Source == nil || nc.Status.Source.State != source {
		p.t.Fatalf("the source is %+v, want %s", nc.Status.Source, source)
	}
	if target != "" && (nc.Status.Target == nil || nc.Status.Target.State != target) {
		p.t.Fatalf("the target is %+v, want %s", nc.Status.Target, target)
	}
}

// left lists what a side holds.
func (p *pair) left(s *side) []string {
	p.t.Helper()
	var files []string
	for _, pattern := range []string{filepath.Join(s.config.Archives, "*"), filepath.Join(s.config.Dir, "*"), filepath.Join(s.config.Dir, "*", "*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			p.t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}

// expectRunsOn expects that nothing came of it: the source works, and neither agent holds anything.
func (p *pair) expectRunsOn() {
	p.t.Helper()
	if p.source.node.anyPaused() {
		p.t.Error("a container of the source is paused")
	}
	if files := append(p.left(p.source), p.left(p.target)...); len(files) > 0 {
		p.t.Errorf("still there: %v", files)
	}
	if len(p.target.node.images) > 0 {
		p.t.Errorf("the target has images %v", p.target.node.images)
	}
}

func TestTheStateGoesFromNodeToNode(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointWorking)
	if !p.source.node.paused["id-app"] || !p.source.node.paused["id-side"] || p.source.node.paused["id-other"] || p.source.node.unpaused {
		t.Errorf("paused are %v, before the state was written: %v", p.source.node.paused, !p.source.node.unpaused)
	}
	files, err := filepath.Glob(filepath.Join(p.source.config.Archives, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("archives %v, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	p.stage(v1alpha1.StageTransfer)
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
	for _, a := range p.now().Status.Target.Archives {
		if a.Image != "mainspring.local/checkpoint/0a-1b:"+a.Container || p.target.node.images[a.Image] != "checkpoint" || a.Restored != "" {
			t.Errorf("archive %+v, images %v", a, p.target.node.images)
		}
	}
	p.target.node.restored = []containerd.Container{{Name: "app", ID: "id-new", RestoredFrom: "mainspring.local/checkpoint/0a-1b:app"}}
	p.settle()
	if got := p.now().Status.Target.Archives[0].Restored; got != "id-new" {
		t.Errorf("restored is %q", got)
	}
	p.stage(v1alpha1.StageRelease)
	p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointReleased)
	if !p.source.node.paused["id-app"] {
		t.Error("the source was resumed, though there is another one at work")
	}
	for image, means := range p.target.node.images {
		if means != "sha256:app example.test/app:1" {
			t.Errorf("image %s means %s", image, means)
		}
	}
	if files := append(p.left(p.source), p.left(p.target)...); len(files) > 0 {
		t.Errorf("still there: %v", files)
	}
	// The names go when no pod asks for them any longer, and no container counts on them.
	p.api.used = map[string]bool{"mainspring.local/checkpoint/0a-1b:app": true}
	p.target.keeper.Sweep(t.Context())
	if len(p.target.node.images) != 1 {
		t.Errorf("images after a sweep: %v", p.target.node.images)
	}
	p.api.used, p.target.node.recorded = nil, "mainspring.local/checkpoint/0a-1b:app"
	p.target.keeper.Sweep(t.Context())
	if len(p.target.node.images) != 1 {
		t.Errorf("images after a sweep: %v, though the runtime has recorded one with a container", p.target.node.images)
	}
	p.target.node.recorded = ""
	p.target.keeper.Sweep(t.Context())
	if len(p.target.node.images) != 0 {
		t.Errorf("images after the last sweep: %v", p.target.node.images)
	}
}

func TestTheSourceRunsOnWhenItComesToNothing(t *testing.T) {
	for _, from := range []v1alpha1.CheckpointStage{v1alpha1.StageCheckpoint, v1alpha1.StageTransfer} {
		for what, ends := range map[string]func(*pair){
			"discarded": func(p *pair) { p.stage(v1alpha1.StageDiscard) },
			"deleted": func(p *pair) {
				p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.DeletionTimestamp = ptr.To(metav1.NewTime(p.clock.Now())) })
			},
			"expired": func(p *pair) { p.clock.Step(2 * time.Hour) },
			"gone":    func(p *pair) { delete(p.api.all, name) },
			"another of its name": func(p *pair) {
				p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) {
					nc.UID, nc.Spec.SourceNode, nc.Spec.TargetNode, nc.Status = "other", "x", "y", v1alpha1.NodeCheckpointStatus{}
				})
				p.source.keeper.Sweep(p.t.Context())
				p.target.keeper.Sweep(p.t.Context())
			},
		} {
			t.Run(string(from)+" "+what, func(t *testing.T) {
				p := newPair(t)
				p.settle()
				p.stage(from)
				ends(p)
				p.settle()
				if what == "gone" || what == "another of its name" {
					for image := range p.target.node.images { // their names wait for the pods that may use them
						if p.target.node.images[image] == "checkpoint" {
							t.Errorf("image %s still restores", image)
						}
					}
					p.target.keeper.Sweep(t.Context())
				}
				p.expectRunsOn()
				if nc := p.now(); nc != nil && nc.UID == "0a-1b" {
					p.expect(v1alpha1.CheckpointDiscarded, v1alpha1.CheckpointDiscarded)
				}
			})
		}
	}
}

// A pod that may be at work elsewhere is not let go on by guesswork.
func TestThatTheTimeIsOverIsBelievedOfTheAPIServerOnly(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.clock.Step(2 * time.Hour)
	p.api.away = true
	p.settle()
	if !p.source.node.anyPaused() {
		t.Error("it was resumed while nobody could say whether it is at work elsewhere")
	}
	p.api.away = false
	p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Expires = metav1.NewTime(p.clock.Now().Add(time.Hour)) })
	p.settle()
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointWorking)
	if !p.source.node.anyPaused() {
		t.Error("it was resumed though its time was prolonged")
	}
}

func TestASourceThatCannotRunsOnAndSaysWhy(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*pair)
		say    string
	}{
		"no such container": {func(p *pair) { delete(p.source.node.running, "side") }, `no running container "side"`},
		"unable":            {func(p *pair) { p.source.node.can = v1alpha1.CheckpointCapability{Message: "no CRIU"} }, "no CRIU"},
		"kubelet":           {func(p *pair) { p.source.node.nextErr = errors.New("the kubelet answers 500") }, "500"},
		"too large": {func(p *pair) {
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.MaxBytes = ptr.To(int64(2000)) })
		}, "too large"},
		"no room by estimate": {func(p *pair) { p.restart(p.source, func(c *checkpoint.Config) { c.Limits.Archive = 10 }) }, "too large"},
		"over quota":          {func(p *pair) { p.restart(p.source, func(c *checkpoint.Config) { c.Limits.Quota = 1500 }) }, "no more of the disk"},
		"disk full":           {func(p *pair) { p.restart(p.source, func(c *checkpoint.Config) { c.Limits.Free = 1 << 60 }) }, "have to stay free"},
		"archive elsewhere":   {func(p *pair) { p.source.node.place = "/etc/shadow" }, "/etc/shadow"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t)
			tc.change(p)
			p.settle()
			p.expect(v1alpha1.CheckpointFailed, v1alpha1.CheckpointWorking)
			if message := p.now().Status.Source.Message; !strings.Contains(message, tc.say) {
				t.Errorf("it says %q", message)
			}
			if p.source.node.anyPaused() {
				t.Error("it is paused")
			}
			// What the kubelet finishes late goes, too.
			if what == "kubelet" {
				if _, err := p.source.node.Checkpoint(t.Context(), checkpoint.Pod{Namespace: "default", Name: "p"}, "app", 0); err == nil {
					t.Fatal("no error")
				}
			}
			p.stage(v1alpha1.StageDiscard)
			p.expectRunsOn()
		})
	}
}

// restart gives an agent another configuration.
func (p *pair) restart(s *side, change func(*checkpoint.Config)) {
	p.t.Helper()
	change(&s.config)
	p.start(s)
}

func TestAContainerThatAnotherClientResumesEndsIt(t *testing.T) {
	p := newPair(t)
	p.settle()
	p.source.node.paused["id-app"] = false
	p.settle()
	p.expect(v1alpha1.CheckpointFailed, v1alpha1.CheckpointWorking)
	if p.source.node.anyPaused() {
		t.Error("the other container is paused")
	}
}

func TestATransferThatCannotBeDoneSaysWhy(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*pair)
		say    string
	}{
		"corrupt":   {func(p *pair) { p.spoil(func(content []byte) []byte { content[len(content)/2] ^= 1; return content }) }, "corrupt"},
		"truncated": {func(p *pair) { p.spoil(func(content []byte) []byte { return content[:len(content)/2] }) }, "does not advance"},
		"peer gone": {func(p *pair) { p.source.stop() }, "does not advance"},
		"unable":    {func(p *pair) { p.target.node.can = v1alpha1.CheckpointCapability{Message: "removed in 2.4"} }, "removed in 2.4"},
		"too large": {func(p *pair) { p.restart(p.target, func(c *checkpoint.Config) { c.Limits.Archive = 10 }) }, "too large"},
		"disk full": {func(p *pair) { p.restart(p.target, func(c *checkpoint.Config) { c.Limits.Free = 1 << 60 }) }, "have to stay free"},
		"another agent": {func(p *pair) {
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) {
				nc.Status.Source.Certificate = "sha256:" + strings.Repeat("0", 64)
			})
			p.source.config.Node = "elsewhere" // and the source's agent does not put it right
		}, "another certificate"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t)
			p.settle()
			tc.change(p)
			p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageTransfer })
			stop := p.pass(10 * time.Second)
			p.once(p.target)
			stop()
			p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointFailed)
			if message := p.now().Status.Target.Message; !strings.Contains(message, tc.say) {
				t.Errorf("it says %q", message)
			}
			if !p.source.node.anyPaused() {
				t.Error("the source went on before anybody said so")
			}
			p.stage(v1alpha1.StageDiscard)
			p.expectRunsOn()
		})
	}
}

// A source's agent that is started anew has another key and another address, and the transfer goes on where it was.
func TestATransferGoesOnWithTheAgentThatComesAfter(t *testing.T) {
	p := newPair(t)
	p.settle()
	before := p.source.keeper.Fingerprint()
	p.start(p.source)
	if p.source.keeper.Fingerprint() == before {
		t.Fatal("the key outlived the agent")
	}
	p.api.change(name, func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageTransfer })
	done := make(chan struct{})
	go func() { defer close(done); p.once(p.target) }()
	for !p.clock.HasWaiters() { // until the target has tried in vain
		select {
		case <-done:
			t.Fatal("the target spoke with an agent that it does not know")
		case <-time.After(time.Millisecond):
		}
	}
	p.once(p.source)
	defer p.pass(time.Second)()
	<-done
	p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
}

// pass lets time pass while a goroutine waits for it, until stop has returned. It is fast at first, and then so slow that on a
// busy machine the hour of the NodeCheckpoint does not pass while both are at work.
func (p *pair) pass(step time.Duration) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		pause := time.Millisecond
		for stepped := 0; ; {
			select {
			case <-stopping:
				return
			case <-time.After(pause):
			}
			if p.clock.HasWaiters() {
				p.clock.Step(step)
				stepped++
			}
			if stepped > 100 {
				pause = 100 * time.Millisecond
			}
		}
	}()
	return func() { close(stopping); <-stopped }
}

// spoil changes the source's archives on its disk.
func (p *pair) spoil(change func([]byte) []byte) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.source.config.Archives, "*"))
	if err != nil || len(files) == 0 {
		p.t.Fatalf("archives %v, %v", files, err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(f, change(content), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// The agents are killed once at each call to the world outside, before and after it is done, in a checkpoint that succeeds and
// in one that is discarded: no container is left paused, and nothing is left behind.
func TestAgentsThatAreKilledAnywhere(t *testing.T) {
	for _, end := range []v1alpha1.CheckpointStage{v1alpha1.StageRelease, v1alpha1.StageDiscard} {
		for _, after := range []bool{false, true} {
			first, by := sampling.Stride(t, 3)
			for die := first; ; die += by {
				p := newPair(t)
				p.api.fate.die, p.api.fate.after = die, after
				p.settle()
				p.stage(v1alpha1.StageTransfer)
				state := p.now().Status.Source.State
				switch state {
				case v1alpha1.CheckpointCheckpointed:
					if !p.source.node.paused["id-app"] || !p.source.node.paused["id-side"] {
						t.Fatalf("killed at call %d: checkpointed, and %v", die, p.source.node.paused)
					}
				case v1alpha1.CheckpointFailed:
					if p.source.node.anyPaused() {
						t.Fatalf("killed at call %d: failed, and paused", die)
					}
				default:
					t.Fatalf("killed at call %d: the source is %s", die, state)
				}
				if state == v1alpha1.CheckpointFailed || end == v1alpha1.StageDiscard {
					p.stage(v1alpha1.StageDiscard)
					p.expectRunsOn()
				} else {
					p.expect(v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointTransferred)
					p.stage(v1alpha1.StageRelease)
					p.expect(v1alpha1.CheckpointReleased, v1alpha1.CheckpointReleased)
				}
				p.source.stop()
				p.target.stop()
				if t.Failed() {
					t.Fatalf("killed at call %d, after it: %v, end %s", die, after, end)
				}
				if p.api.fate.calls < die {
					t.Logf("%d calls", p.api.fate.calls)
					break
				}
			}
		}
	}
}
