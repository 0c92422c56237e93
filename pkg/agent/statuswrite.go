package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

const (
	// statusEvery is the least time between two writes of the status.
	statusEvery = time.Second
	// driftedFor is how long the condition Drifted stays after something was set again.
	driftedFor = 10 * time.Second
)

// reporter writes RTNode.status: when it has changed, at most once a second. While it says what is so, and only then, a
// Lease shows that the agent lives. While the API server is away it tries on; the counters wait in the ledger, so nothing
// is lost.
type reporter struct {
	api       API
	node      string
	version   string
	heartbeat time.Duration
	world     func() *World
	applied   func() *Applied
	counted   func() *Counted
	pressure  func() pressure.State
	cores     func() []rt.Core
	// checkpoint is what the node can do about the state of containers; nil: nothing that is known.
	checkpoint func() *v1alpha1.CheckpointCapability
	clock      clock.WithTicker
	log        logr.Logger

	conditions []metav1.Condition
	written    v1alpha1.RTNodeStatus
	writtenTo  types.UID
	writtenAt  time.Time
	livedAt    time.Time // the last sign of life: the status or the Lease
	drift      *uint64   // when last looked at
	driftedAt  time.Time
	failed     atomic.Bool
	forbidden  bool // to renew the Lease
}

// Name implements Service.
func (r *reporter) Name() string { return "report" }

// Run writes until ctx ends.
func (r *reporter) Run(ctx context.Context) error {
	every(ctx, r.clock, statusEvery, r.report)
	return nil
}

func (r *reporter) report(ctx context.Context) {
	world := r.world()
	if world == nil || world.RTNode == nil {
		return
	}
	now := r.clock.Now()
	status := r.view(world, now).status()
	r.conditions = status.Conditions
	var err error
	switch uid := world.RTNode.UID; {
	case r.due(uid, status, now):
		err = r.write(ctx, uid, status, now)
	case now.Sub(r.livedAt) >= r.heartbeat:
		err = r.live(ctx, uid, status, now)
	default:
		return
	}
	if err != nil {
		if !r.failed.Swap(true) && ctx.Err() == nil {
			r.log.Error(err, "reporting; trying on")
		}
		return
	}
	if r.failed.Swap(false) {
		r.log.Info("RTNode.status and the Lease are up to date again")
	}
}

func (r *reporter) write(ctx context.Context, to types.UID, status v1alpha1.RTNodeStatus, now time.Time) error {
	status.HeartbeatTime = ptr.To(metav1.NewMicroTime(now))
	err := r.api.ApplyStatus(ctx, r.node, to, status)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it was replaced or has gone: its watch event is on the way
	}
	if err != nil {
		return fmt.Errorf("writing RTNode.status: %w", err)
	}
	r.written, r.writtenTo, r.writtenAt, r.livedAt = status, to, now, now
	return nil
}

// live shows that the agent lives. One that may not write its Lease, as while a chart is being upgraded or its rights were taken away, is there all the
// same: it says so by its status.
func (r *reporter) live(ctx context.Context, uid types.UID, status v1alpha1.RTNodeStatus, now time.Time) error {
	err := r.renew(ctx, uid, now)
	if !apierrors.IsForbidden(err) {
		r.forbidden = r.forbidden && err != nil
		return err
	}
	if !r.forbidden {
		r.forbidden = true
		r.log.Error(err, "writing RTNode.status for every heartbeat instead")
	}
	return r.write(ctx, uid, status, now)
}

func (r *reporter) renew(ctx context.Context, of types.UID, now time.Time) error {
	if err := r.api.RenewLease(ctx, heartbeat.Lease(r.node, of, now)); err != nil {
		return fmt.Errorf("renewing Lease %s/%s: %w", heartbeat.Namespace, heartbeat.Name(r.node), err)
	}
	r.livedAt = now
	return nil
}

// view gathers what there is. A new RTNode begins with the conditions that it says.
func (r *reporter) view(world *World, now time.Time) view {
	if r.conditions == nil || r.writtenTo != "" && r.writtenTo != world.RTNode.UID {
		r.conditions = world.RTNode.Status.Conditions
	}
	counted := r.counted()
	r.watchDrift(counted, now)
	return view{
		world: world, applied: r.applied(), counted: counted, pressure: r.pressure(), cores: r.cores(), version: r.version, checkpoint: r.capability(),
		drifted: !r.driftedAt.IsZero() && now.Sub(r.driftedAt) < driftedFor, before: r.conditions, now: now,
	}
}

func (r *reporter) capability() *v1alpha1.CheckpointCapability {
	if r.checkpoint == nil {
		return nil
	}
	return r.checkpoint()
}

// watchDrift notes when something was set again. What an earlier agent counted is no news.
func (r *reporter) watchDrift(c *Counted, now time.Time) {
	if c == nil || c.Report.Instance == "" {
		return
	}
	if r.drift != nil && c.All.Drift > *r.drift {
		r.driftedAt = now
	}
	r.drift = ptr.To(c.All.Drift)
}

// due says that the status is worth a write: it differs, or was written long ago.
func (r *reporter) due(to types.UID, status v1alpha1.RTNodeStatus, now time.Time) bool {
	since := now.Sub(r.writtenAt)
	if r.writtenTo != to || since >= heartbeat.Refresh {
		return true
	}
	switch now, before := worth(status), worth(r.written); {
	case since < statusEvery:
		return false
	case since >= v1alpha1.CountsEvery:
		return !apiequality.Semantic.DeepEqual(now, before)
	default:
		return !apiequality.Semantic.DeepEqual(now.Uncounted(), before.Uncounted())
	}
}

// worth is the status without what changes all the time and can wait.
func worth(s v1alpha1.RTNodeStatus) v1alpha1.RTNodeStatus {
	s.HeartbeatTime, s.Pressure.CPUPercent, s.Pressure.PSI = nil, 0, nil
	return s
}
