package checkpoint_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// errKilled is what a call panics with after which the agent was killed.
var errKilled = errors.New("killed")

// fate kills the agent at a certain call to the world outside, before or after it is done.
type fate struct {
	mu    sync.Mutex
	calls int
	die   int // the call at which it dies; 0: never
	after bool
}

func (f *fate) do(call func()) {
	f.mu.Lock()
	f.calls++
	now := f.die > 0 && f.calls == f.die
	f.mu.Unlock()
	if now && !f.after {
		panic(errKilled)
	}
	call()
	if now {
		panic(errKilled)
	}
}

// fakeAPI is an API server with NodeCheckpoints, in memory.
type fakeAPI struct {
	fate *fate
	mu   sync.Mutex
	all  map[string]*v1alpha1.NodeCheckpoint
	// progressed is how often an agent has told that its work goes on.
	progressed atomic.Int64
	// away: the API server does not answer.
	away bool
	used map[string]bool
	// copied: another pod is in the place of any.
	copied bool
	// deleted: the source's pod is; gone: there is none any longer.
	deleted, gone bool
	// before is called before a side is written; nil: nothing is.
	before   func(v1alpha1.CheckpointSide)
	versions int
}

func (a *fakeAPI) Copied(context.Context, string, types.UID) (bool, error) { return a.copied, nil }

func (a *fakeAPI) Deleted(context.Context, checkpoint.Pod) (deleted, gone bool, err error) {
	return a.deleted || a.gone, a.gone, nil
}

func (a *fakeAPI) read(name string) *v1alpha1.NodeCheckpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name].DeepCopy()
}

func (a *fakeAPI) change(name string, f func(*v1alpha1.NodeCheckpoint)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.versions++
	a.all[name].ResourceVersion = strconv.Itoa(a.versions)
	f(a.all[name])
}

var errAway = errors.New("connection refused")

func (a *fakeAPI) Get(_ context.Context, name string) (*v1alpha1.NodeCheckpoint, error) {
	if a.away {
		return nil, errAway
	}
	if nc := a.read(name); nc != nil {
		return nc, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodecheckpoints"}, name)
}

func (a *fakeAPI) Report(_ context.Context, of checkpoint.Version, role checkpoint.Role, side v1alpha1.CheckpointSide) error {
	if a.away {
		return errAway
	}
	name, uid := of.Name, of.UID
	if a.before != nil {
		a.before(side)
	}
	if nc := a.read(name); nc != nil && of.Resource != "" && nc.ResourceVersion != of.Resource {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodecheckpoints"}, name, errors.New("it was changed"))
	}
	if side.ProgressTime != nil { // told beside the work: an agent that dies over it dies over that
		a.progressed.Add(1)
		return nil
	}
	a.fate.do(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if nc := a.all[name]; nc != nil && nc.UID == uid {
			if role == checkpoint.Source {
				nc.Status.Source = side.DeepCopy()
			} else {
				nc.Status.Target = side.DeepCopy()
			}
		}
	})
	return nil
}

func (a *fakeAPI) Images(context.Context) (map[string]bool, error) { return a.used, nil }

// fakeNode is a node's runtime and kubelet.
type fakeNode struct {
	fate     *fate
	mu       sync.Mutex
	archives string
	can      v1alpha1.CheckpointCapability
	// running are container IDs by name; paused by ID.
	running map[string]string
	paused  map[string]bool
	images  map[string]string // name: "checkpoint" or the base that it means
	content []byte            // of the next archives
	written int               // archives that were written
	// unpaused: a checkpoint was taken of a container that was not paused.
	unpaused bool
	restored []containerd.Container
	nextErr  error  // of the next checkpoint
	asked    func() // what it can do; nil: nothing happens
	stuck    error  // nothing can be resumed
	memory   int64  // of each container; 0: 1000
	place    string
	// slow is what is waited for while a state is written or taken.
	slow func()
	// has are the images that it has.
	has []string
	// terminating: the kubelet lists the pod as deleted; unlisted: it does not list it; forbidden is its answer, if it is an error.
	terminating, unlisted bool
	forbidden             error
	// killed are the IDs of containers that were killed, and ranWhenKilled whether one of them ran at that time.
	killed        []string
	ranWhenKilled bool
	// recorded is the image's name that the runtime has recorded with a container of another pod.
	recorded string
}

func newFakeNode(archives string, f *fate) *fakeNode {
	return &fakeNode{
		fate: f, archives: archives, can: v1alpha1.CheckpointCapability{Driver: checkpoint.DriverCRI, Checkpoints: true, Restores: true},
		running: map[string]string{}, paused: map[string]bool{}, images: map[string]string{}, content: bytes.Repeat([]byte("state"), 100_000),
		has: []string{"sha256:app", "example.test/app:1"},
	}
}

func (n *fakeNode) Capability(context.Context) v1alpha1.CheckpointCapability {
	if n.asked != nil {
		n.asked()
	}
	return n.can
}

func (n *fakeNode) Containers(context.Context, types.UID) ([]containerd.Container, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []containerd.Container
	for _, name := range slices.Sorted(maps.Keys(n.running)) {
		list = append(list, containerd.Container{Name: name, ID: n.running[name]})
	}
	return list, nil
}

func (n *fakeNode) Memory(context.Context, types.UID, string) (memory, written int64, err error) {
	return cmp.Or(n.memory, 1000), 24, nil
}

func (n *fakeNode) set(id string, paused bool) error {
	n.fate.do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.paused[id] = paused
	})
	return nil
}

func (n *fakeNode) Pause(_ context.Context, id string) error {
	if !n.there(id) {
		return errEnded
	}
	return n.set(id, true)
}

func (n *fakeNode) Resume(_ context.Context, id string) error {
	if n.stuck != nil {
		return n.stuck
	}
	return n.set(id, false)
}

func (n *fakeNode) Paused(_ context.Context, id string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused[id], nil
}

var errEnded = errors.New("the container has no processes")

func (n *fakeNode) Terminating(context.Context, types.UID) (listed, terminating bool, err error) {
	return !n.unlisted, n.terminating && !n.unlisted, n.forbidden
}

func (n *fakeNode) Kill(_ context.Context, id string) error {
	n.fate.do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.killed, n.ranWhenKilled = append(n.killed, id), n.ranWhenKilled || !n.paused[id]
		maps.DeleteFunc(n.running, func(_, other string) bool { return other == id })
		delete(n.paused, id)
	})
	return nil
}

// there tells whether a container has not ended.
func (n *fakeNode) there(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(n.running)), id)
}

func (n *fakeNode) Runs(_ context.Context, id string) (bool, error) {
	there := n.there(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	return there && !n.paused[id], nil
}

// ends has a container end, and another begin in its place, if it has an ID.
func (n *fakeNode) ends(name, next string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.paused, n.running[name])
	if n.running[name] = next; next == "" {
		delete(n.running, name)
	}
}

// anyPaused tells whether a container stands still.
func (n *fakeNode) anyPaused() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(n.paused)), true)
}

func (n *fakeNode) Checkpoint(_ context.Context, pod checkpoint.Pod, container string, _ time.Duration) (string, error) {
	var path string
	if n.slow != nil {
		n.slow()
	}
	n.fate.do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.unpaused = n.unpaused || !n.paused[n.running[container]]
		n.written++
		path = filepath.Join(n.archives, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, container, time.Unix(int64(n.written), 0).UTC().Format(time.RFC3339)))
		if err := os.WriteFile(path, archiveOf(n.content), 0o644); err != nil {
			panic(err)
		}
	})
	if n.place != "" {
		return n.place, n.nextErr
	}
	return path, n.nextErr
}

// archiveOf is one as the runtime makes it.
func archiveOf(content []byte) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range map[string][]byte{
		"config.dump": []byte(`{"rootfsImageName":"example.test/app:1","rootfsImageRef":"sha256:app"}`), "checkpoint/pages-1.img": content,
	} {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}), write(w, text)); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func write(w *tar.Writer, text []byte) error {
	_, err := w.Write(text)
	return err
}

func (n *fakeNode) Has(_ context.Context, names ...string) (bool, error) {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(n.has, name) }), nil
}

func (n *fakeNode) Import(_ context.Context, i containerd.Image) error {
	if n.slow != nil {
		n.slow()
	}
	n.fate.do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.images[i.Name] = "checkpoint"
	})
	return nil
}

func (n *fakeNode) Restored(context.Context) ([]containerd.Container, error) { return n.restored, nil }

func (n *fakeNode) Retire(_ context.Context, name string, bases ...string) error {
	n.fate.do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		switch {
		case len(bases) == 0:
			delete(n.images, name)
		case n.images[name] != "":
			n.images[name] = strings.Join(bases, " ")
		}
	})
	return nil
}

func (n *fakeNode) Remove(_ context.Context, name string) error {
	n.fate.do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.images, name)
	})
	return nil
}

func (n *fakeNode) Recorded(_ context.Context, name string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.recorded == name, nil
}

func (n *fakeNode) Images(_ context.Context, prefix string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(n.images)), func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}
