package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// workers is how many NodeCheckpoints are looked at at once; what takes long is done apart.
	workers = 4
	// watchEvery is how often containers that are paused are looked at, and restoredEvery is how often is asked whether
	// containers have been restored.
	watchEvery, restoredEvery = 5 * time.Second, 500 * time.Millisecond
	// terminatingEvery is how often the agent asks whether the pod is deleted whose containers stay paused for good.
	terminatingEvery = time.Second
	// lookAgain is when what is over, by what was known of it, is looked at again.
	lookAgain = 200 * time.Millisecond
	// sweepEvery is how often the agent looks for what no NodeCheckpoint asks for any longer.
	sweepEvery = time.Minute
	// capabilityEvery is how often the agent looks what the node can do.
	capabilityEvery = 5 * time.Minute
	// podLocks is for how many pods at once can be decided at least nearly apart: one takes the time of some calls to the runtime.
	podLocks = 64
	// messageMost is the longest message that the API takes.
	messageMost = 1024
)

// Config of a Keeper.
type Config struct {
	// Node is this one's name.
	Node string
	API  API
	// Watch tells of NodeCheckpoints from or to this node until ctx ends: each time one changes, or is there no longer. It
	// returns how they are read from what is known, nil for one that is not there.
	Watch  func(ctx context.Context, changed func(name string)) (get func(name string) *v1alpha1.NodeCheckpoint, run func() error, err error)
	Driver Driver
	// Dir is the keeper's own directory; Archives is the kubelet's directory of checkpoints.
	Dir, Archives string
	// Listener takes other agents, and Address is where they reach it.
	Listener net.Listener
	Address  string
	Limits   Limits
	// Rate of all transfers together, in bytes per second; 0: as fast as it goes.
	Rate  int64
	Clock clock.WithTicker
	Log   logr.Logger
}

// Keeper does this node's part of NodeCheckpoints.
type Keeper struct {
	Config
	identity *identity
	records  records
	figures  figures
	errands  errands
	promises promises
	// pods are locked, by UID, while is decided for which NodeCheckpoint their containers stand still.
	pods  keymutex.KeyMutex
	get   func(name string) *v1alpha1.NodeCheckpoint
	queue workqueue.TypedRateLimitingInterface[string]

	mu         sync.Mutex // guards what follows, and get until everything runs
	capability *v1alpha1.CheckpointCapability
	running    map[string]context.CancelFunc // transfers, by NodeCheckpoint
}

// New makes a keeper with a new key.
func New(c Config) (*Keeper, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of checkpoints: %w", err)
	}
	own, err := newIdentity(c.Node, c.Clock.Now())
	if err != nil {
		return nil, err
	}
	return &Keeper{
		Config: c, identity: own, records: records{dir: c.Dir}, figures: newFigures(), errands: newErrands(), promises: newPromises(),
		pods: keymutex.NewHashed(podLocks), running: map[string]context.CancelFunc{},
	}, nil
}

// Capability is what the node can do; nil until it was looked at.
func (k *Keeper) Capability() *v1alpha1.CheckpointCapability {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.capability
}

func (k *Keeper) discover(ctx context.Context) v1alpha1.CheckpointCapability {
	found := k.Driver.Capability(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.capability == nil || *k.capability != found {
		k.Log.Info("what the node can do about the state of containers", "driver", found.Driver, "checkpoints", found.Checkpoints,
			"restores", found.Restores, "runtime", found.Runtime, "criu", found.CRIU, "message", found.Message)
	}
	k.capability = &found
	return found
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	k.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 10*time.Second),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: k.Clock})
	get, watch, err := k.Watch(ctx, k.changed)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.get = get
	k.mu.Unlock()
	group, running := errgroup.WithContext(ctx)
	group.Go(watch)
	group.Go(func() error {
		return newServer(k.find, k.Rate).serve(running, k.Listener, k.identity.server())
	})
	group.Go(func() error { k.repeat(running, capabilityEvery, func() { k.discover(running) }); return nil })
	group.Go(func() error { k.repeat(running, sweepEvery, func() { k.sweep(running) }); return nil })
	group.Go(func() error {
		select { // NodeCheckpoints are looked at first: what is held of them may be held without a record
		case <-running.Done():
		case <-k.Clock.After(sweepEvery):
			k.repeat(running, sweepEvery, func() { k.sweepNames(running) })
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			for k.next(running, group.Go) {
			}
			return nil
		})
	}
	group.Go(func() error { <-running.Done(); k.queue.ShutDown(); return nil })
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// repeat calls f now and at every interval.
func (k *Keeper) repeat(ctx context.Context, interval time.Duration, f func()) {
	ticker := k.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// changed has a NodeCheckpoint looked at; a transfer that is no longer wanted ends at once.
func (k *Keeper) changed(name string) {
	k.queue.Add(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.get == nil {
		return // nothing runs yet
	}
	if nc := k.get(name); nc != nil && !dismissed(nc) {
		return
	}
	if cancel := k.running[name]; cancel != nil {
		cancel()
	}
}

// Reconcile does what a NodeCheckpoint wants of this node now, whatever time that takes, and says when to look again.
func (k *Keeper) Reconcile(ctx context.Context, name string) (time.Duration, error) {
	return k.reconcile(ctx, name, func(_ Role, do errand) (time.Duration, error) { return do(ctx) })
}

func (k *Keeper) reconcile(ctx context.Context, name string, hand apart) (time.Duration, error) {
	nc := k.get(name)
	switch {
	case nc == nil:
		return 0, k.forgotten(ctx, name)
	case nc.Spec.SourceNode == k.Node:
		return k.source(ctx, nc, hand)
	case nc.Spec.TargetNode == k.Node:
		return k.target(ctx, nc, hand)
	}
	return 0, nil
}

// dismissed: it came to nothing, whatever was done. While a pod may be at work with the state its deletion says nothing: the
// controller that made that pod takes it away first.
func dismissed(nc *v1alpha1.NodeCheckpoint) bool {
	deleted := nc.DeletionTimestamp != nil && nc.Spec.Stage != v1alpha1.StageRelease && nc.Spec.Stage != v1alpha1.StageRestore
	return nc.Spec.Stage == v1alpha1.StageDiscard || deleted
}

// timeless: a pod may be at work with the state, so that no time ends it.
func timeless(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Spec.Stage == v1alpha1.StageRestore || nc.Spec.Stage.GivenUp()
}

// over says why nothing of the NodeCheckpoint is to be held any longer; empty while something is. That its time is over is
// believed only when the API server itself says so: its stage may have changed, or its time been prolonged, unseen. Held is what is on record of it; nil:
// nothing is.
func (k *Keeper) over(ctx context.Context, nc *v1alpha1.NodeCheckpoint, role Role, held *record) (string, error) {
	switch {
	case dismissed(nc):
		return "it was discarded", nil
	case role == Source && pending(nc) && nc.Status.Source.State == v1alpha1.CheckpointDiscarded:
		return timeOver, nil
	case timeless(nc) || k.Clock.Now().Before(nc.Spec.Expires.Time):
		return "", nil
	}
	now, err := k.API.Get(ctx, nc.Name)
	switch {
	case err != nil:
		return "", fmt.Errorf("asking whether the time of the NodeCheckpoint is over: %w", err)
	case now.UID != nc.UID || dismissed(now):
		return "it was discarded", nil
	case timeless(now) || k.Clock.Now().Before(now.Spec.Expires.Time):
		return "", nil // the cache will tell
	}
	return k.claim(ctx, now, role, held)
}

// timeOver is why nothing is to be held any longer of a NodeCheckpoint that the controller has not prolonged.
const timeOver = "its time is over"

// pending tells whether this node has told that the source's containers are about to be resumed, and not yet that they are.
func pending(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Status.Source.Decided() && nc.Status.Source.Pending && !timeless(nc)
}

// claim says that the time of a NodeCheckpoint is over before that has any effect. Clocks may differ: by the controller's clock
// its time may not be over, and the controller may take it a stage further meanwhile. Then the API server refuses either the
// controller's write or this one. The agent tells of what is stopped until that runs on: no other component would know.
func (k *Keeper) claim(ctx context.Context, now *v1alpha1.NodeCheckpoint, role Role, held *record) (string, error) {
	side := now.Status.Source
	if role == Target {
		side = now.Status.Target
	}
	if side.Decided() {
		return timeOver, nil
	}
	gone := v1alpha1.CheckpointSide{State: v1alpha1.CheckpointDiscarded, Message: timeOver}
	if role == Source {
		gone.Disturbance, gone.Pending = disturbance(now, held), stopped(now) || held != nil && held.stops()
	}
	err := k.API.Report(ctx, Version{now.Name, now.UID, now.ResourceVersion}, role, gone)
	if err != nil {
		return "", fmt.Errorf("saying that the time of the NodeCheckpoint is over: %w", err)
	}
	return timeOver, nil
}

// report writes this node's side, where it differs.
func (k *Keeper) report(ctx context.Context, nc *v1alpha1.NodeCheckpoint, role Role, side v1alpha1.CheckpointSide) error {
	if len(side.Message) > messageMost {
		side.Message = side.Message[:messageMost]
	}
	before := nc.Status.Source
	if role == Target {
		before = nc.Status.Target
	}
	if before != nil && apiequality.Semantic.DeepEqual(*before, side) {
		return nil
	}
	err := k.API.Report(ctx, Version{Name: nc.Name, UID: nc.UID}, role, side)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one of the name is there: its event is on the way
	}
	if err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	if before == nil || before.State != side.State {
		k.Log.Info("a NodeCheckpoint has come to a state", "nodeCheckpoint", nc.Name, "pod", nc.Spec.PodNamespace+"/"+nc.Spec.PodName,
			"role", role, "state", side.State, "message", side.Message)
	}
	return nil
}

// most is the largest archive that the NodeCheckpoint and this node allow.
func (k *Keeper) most(nc *v1alpha1.NodeCheckpoint) Limits {
	limits := k.Limits
	if most := nc.Spec.MaxBytes; most != nil && (limits.Archive <= 0 || *most < limits.Archive) {
		limits.Archive = *most
	}
	return limits
}

// find is what may be given to which agent: what the NodeCheckpoint says, from the stage on in which it says so.
func (k *Keeper) find(uid types.UID, container string) (holding, bool) {
	if !validUID(uid) {
		return holding{}, false
	}
	one, err := k.records.load(uid, Source)
	if err != nil || one == nil || one.Failure != "" {
		return holding{}, false
	}
	nc, found := k.get(one.Name), one.archive(container)
	if nc == nil || nc.UID != uid || nc.Spec.Stage != v1alpha1.StageTransfer || nc.Status.Target == nil || found == nil {
		return holding{}, false
	}
	return holding{path: found.Path, digest: found.Digest, to: nc.Status.Target.Certificate}, true
}

// permanent tells a failure of the work from the end of the process, after which it goes on.
func permanent(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled)
}
