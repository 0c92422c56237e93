package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// another adds a NodeCheckpoint of a pod of one container on node a, which is named like it.
func (p *pair) another(name string) {
	p.source.node.mu.Lock()
	p.source.node.running[name] = "id-" + name
	p.source.node.mu.Unlock()
	p.api.mu.Lock()
	defer p.api.mu.Unlock()
	p.api.all[name] = &v1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: "default", PodName: name, PodUID: types.UID("pod-" + name), SourceNode: "a", TargetNode: "b", Stage: v1alpha1.StageCheckpoint,
			Containers: []v1alpha1.CheckpointedContainer{{Name: name}}, Expires: metav1.NewTime(p.clock.Now().Add(time.Hour)),
		},
	}
}

// work runs a side's agent until the end of the test, or before. It returns how that is told of a change.
func (p *pair) work(s *side) (changed func(string), end func()) {
	p.t.Helper()
	s.stop()
	told := make(chan func(string), 1)
	s.config.Watch = func(ctx context.Context, changed func(string)) (func(string) *v1alpha1.NodeCheckpoint, func() error, error) {
		told <- changed
		return p.api.read, func() error { <-ctx.Done(); return nil }, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(p.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	s.config.Listener, s.config.Address = listener, listener.Addr().String()
	if s.keeper, err = checkpoint.New(s.config); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.keeper.Run(ctx) }()
	changed = <-told
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(end)
	return changed, end
}

// soon waits until something holds.
func (p *pair) soon(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.After(30 * time.Second); !holds(); {
		select {
		case <-deadline:
			p.t.Fatalf("it never came to pass that %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// of is the state of a NodeCheckpoint's source.
func (p *pair) of(name string) v1alpha1.CheckpointState {
	if side := p.api.read(name).Status.Source; side != nil {
		return side.State
	}
	return ""
}

// As many states are written as may be at once, whatever time that takes. Meanwhile the agent lets a paused source go on when
// that is asked for, and sees one that another client has resumed. What is over in number waits, and goes on when one is done.
// At its end the agent leaves nothing running.
func TestWhatTakesLongHoldsUpNoOtherNodeCheckpoint(t *testing.T) {
	p := newPair(t)
	changed, end := p.work(p.source)
	for _, paused := range []string{"goes-on", "resumed"} {
		p.another(paused)
		changed(paused)
		p.soon(paused+" stands still", func() bool { return p.of(paused) == v1alpha1.CheckpointCheckpointed })
	}
	blocked, entered := make(chan struct{}), make(chan struct{}, 9)
	unblock := sync.OnceFunc(func() { close(blocked) })
	t.Cleanup(unblock)
	p.source.node.slow = func() { entered <- struct{}{}; <-blocked }
	const most = 4
	for i := range most + 1 {
		long := fmt.Sprint("long-", i)
		p.another(long)
		changed(long)
	}
	for range most {
		<-entered
	}
	p.api.change("goes-on", func(nc *v1alpha1.NodeCheckpoint) { nc.Spec.Stage = v1alpha1.StageDiscard })
	changed("goes-on")
	p.soon("a source goes on", func() bool { return p.of("goes-on") == v1alpha1.CheckpointDiscarded })
	if err := p.source.node.Resume(t.Context(), "id-resumed"); err != nil {
		t.Fatal(err)
	}
	p.soon("it is seen that a source was resumed", func() bool {
		p.clock.Step(100 * time.Millisecond) // it is looked at every 5 s
		return p.of("resumed") == v1alpha1.CheckpointFailed
	})
	if len(entered) > 0 {
		t.Errorf("%d states more than %d are written at once", len(entered), most)
	}
	unblock()
	for i := range most + 1 {
		p.soon("all are written", func() bool { return p.of(fmt.Sprint("long-", i)) == v1alpha1.CheckpointCheckpointed })
	}
	end()
}

// Room is promised before a state is written: of two that are written at once the second is refused for the quota, or for what has to stay free, though
// nothing of the first is there yet. What has failed takes none.
func TestRoomIsPromised(t *testing.T) {
	var size int64 = 1024
	free, total := diskBytes(t)
	percent := int(free * 50 / total) // half of what is free
	for what, limits := range map[string]struct {
		checkpoint.Limits
		memory int64
	}{
		"quota":     {checkpoint.Limits{Quota: 2*size - 1}, 0},
		"keep free": {checkpoint.Limits{Free: free / 10}, free / 8}, // four times as much must be free for one
		"a share":   {checkpoint.Limits{Free: 1, FreePercent: percent}, (free - total/100*int64(percent)) / 5},
	} {
		t.Run(what, func(t *testing.T) {
			if limits.Free == 1 && percent == 0 {
				t.Skipf("of a disk of %d bytes with %d free no whole percent can be kept free: that case is not tested", total, free)
			}
			p := newPair(t)
			p.restart(p.source, func(c *checkpoint.Config) { c.Limits = limits.Limits })
			p.source.node.memory = limits.memory
			blocked, entered := make(chan struct{}), make(chan struct{}, 9)
			p.source.node.slow = func() { entered <- struct{}{}; <-blocked }
			p.source.node.nextErr = errors.New("the kubelet answers 500")
			for _, name := range []string{"first", "second", "third"} {
				p.another(name)
			}
			done := make(chan error, 1)
			go func() { _, err := p.source.keeper.Reconcile(t.Context(), "first"); done <- err }()
			<-entered
			refused := make(chan error, 1)
			go func() { _, err := p.source.keeper.Reconcile(t.Context(), "second"); refused <- err }()
			select {
			case <-entered:
				t.Error("both are written at once")
			case err := <-refused:
				if side := p.api.read("second").Status.Source; err != nil || side.State != v1alpha1.CheckpointFailed {
					t.Errorf("%v: %+v", err, side)
				}
			}
			close(blocked)
			if err := <-done; err != nil {
				t.Error(err)
			}
			p.source.node.nextErr = nil
			if _, err := p.source.keeper.Reconcile(t.Context(), "third"); err != nil || p.of("third") != v1alpha1.CheckpointCheckpointed {
				t.Errorf("after the first has failed: %v: %+v", err, p.api.read("third").Status.Source)
			}
		})
	}
}

// diskBytes are what is free of the disk that tests write to, and all that it has.
func diskBytes(t *testing.T) (free, total int64) {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &stat); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Bavail) * stat.Bsize, int64(stat.Blocks) * stat.Bsize
}
