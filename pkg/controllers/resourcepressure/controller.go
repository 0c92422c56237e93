package resourcepressure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

const (
	// unsynced is when to ask again whether the cache is complete.
	unsynced = 250 * time.Millisecond
	// timeout bounds one look, beside the time that the source may take.
	timeout = time.Minute
	// tried is how many nodes a pod is placed on in thought, before it is left where it is until the next look.
	tried = 8
)

// Policies says which MigrationPolicy holds for a pod; nil: none.
type Policies interface {
	For(ctx context.Context, pod *corev1.Pod) (*v1alpha1.MigrationPolicy, error)
}

// Placement tells where pods would be placed (pkg/placement).
type Placement interface {
	// Refusal is why pods would not all be placed on a node beside what is there; empty: they would.
	Refusal(ctx context.Context, node string, pods []*corev1.Pod) (string, error)
}

// Recorder is told what users may wonder about.
type Recorder interface {
	Publish(list ...events.Event)
}

// Dependencies are the collaborators of the loop. All are required.
type Dependencies struct {
	Clock clock.PassiveClock
	// Client writes, and reads from a cache; API asks the API server itself.
	Client client.Client
	API    client.Reader
	// Store knows real-time work.
	Store  *state.Store
	Source usage.Source
	// Latest is told what was read.
	Latest    *usage.Latest
	Placement Placement
	Policies  Policies
	Recorder  Recorder
	Options   Options
}

// Controller is the loop.
type Controller struct {
	Dependencies
	tracks map[trackKey]track
	looked map[setting]time.Time
	// counted are the nodes that metrics were told of.
	counted map[string]bool
	// reported is when a move of a workload was reported, where nothing is moved.
	reported map[string]time.Time
	// failed is the kind of the source's last error, so that an outage is told once.
	failed string
}

// trackKey is a node, not merely a name, under one setting.
type trackKey struct {
	node string
	by   setting
}

// New makes the loop.
func New(d Dependencies) *Controller {
	return &Controller{Dependencies: d, tracks: map[trackKey]track{}, looked: map[setting]time.Time{}, counted: map[string]bool{}, reported: map[string]time.Time{}}
}

// Register adds the loop to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("resourcepressure").WatchesRawSource(singleton.Source()).Complete(singleton.AsReconciler(c))
}

// Reconcile takes one look at all nodes.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	if c.Store.Synced() != nil {
		return reconciler.Result{RequeueAfter: unsynced}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+c.Options.SourceTimeout)
	defer cancel()
	settings, err := c.settings(ctx)
	if err != nil {
		return reconciler.Result{}, err
	}
	c.keep(settings)
	now := c.Clock.Now()
	due, wait := c.due(settings, now)
	if len(due) == 0 {
		return reconciler.Result{RequeueAfter: wait}, nil
	}
	if err := c.look(ctx, due, now); err != nil {
		return reconciler.Result{}, err
	}
	_, wait = c.due(settings, now)
	return reconciler.Result{RequeueAfter: wait}, nil
}

// settings are that of the options and those of MigrationPolicies that have their own.
func (c *Controller) settings(ctx context.Context) ([]setting, error) {
	list := &v1alpha1.MigrationPolicyList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing MigrationPolicies: %w", err)
	}
	out := []setting{c.settingOf(nil)}
	known := map[setting]bool{out[0]: true}
	for i := range list.Items {
		if s := c.settingOf(&list.Items[i]); !known[s] {
			known[s] = true
			out = append(out, s)
		}
	}
	return out, nil
}

// settingOf is what nodes are judged by for the pods of a policy.
func (c *Controller) settingOf(p *v1alpha1.MigrationPolicy) setting {
	s := setting{percent: c.Options.ThresholdPercent, interval: c.Options.Interval}
	if p == nil {
		return s
	}
	if own := p.Spec.ResourcePressureThresholdPercent; own != nil {
		s.percent = int(*own)
	}
	if own := p.Spec.Interval; own != nil && own.Duration > 0 {
		s.interval = own.Duration
	}
	return s
}

// due are the settings whose interval is over, and the time until the next one's is.
func (c *Controller) due(settings []setting, now time.Time) (due []setting, wait time.Duration) {
	wait = time.Hour
	for _, s := range settings {
		left := c.looked[s].Add(s.interval).Sub(now)
		if left <= 0 {
			due, left = append(due, s), 0
		}
		wait = min(wait, left)
	}
	return due, max(wait, time.Millisecond)
}

// look reads the usage of nodes once, judges them by the settings that are due, and does about it what the mode says.
func (c *Controller) look(ctx context.Context, due []setting, now time.Time) error {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	found := c.read(ctx, nodes, due)
	for _, s := range due {
		c.looked[s] = now
	}
	w := &world{Controller: c, now: now, read: now, nodes: nodes, found: found, due: due}
	if err := w.gather(ctx); err != nil {
		return err
	}
	c.forget(nodes)
	for _, n := range nodes {
		if err := w.judge(ctx, n); err != nil {
			return err
		}
	}
	return w.relieve(ctx)
}

func (c *Controller) nodes(ctx context.Context) ([]*corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	out := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// read asks the source. Without an answer the usage of all nodes is unknown; the loop goes on, so that conditions tell.
func (c *Controller) read(ctx context.Context, nodes []*corev1.Node, due []setting) map[string]usage.Usage {
	limits := usage.Limits{Timeout: c.Options.SourceTimeout}
	for _, s := range due {
		limits.MaxAge = max(limits.MaxAge, 3*s.interval)
	}
	found, err := usage.Read(ctx, c.Source, nodes, c.Clock.Now, limits)
	kind := ""
	if err != nil {
		kind = kindOf(err)
		if kind != c.failed {
			log.FromContext(ctx).Error(err, "the usage of nodes is unknown")
		}
	} else if c.failed != "" {
		log.FromContext(ctx).Info("the usage of nodes is known again", "source", c.Source.Name())
	}
	c.failed = kind
	c.Latest.Keep(found)
	return found
}

// keep forgets what was seen by settings that nobody has any longer.
func (c *Controller) keep(settings []setting) {
	for s := range c.looked {
		if !slices.Contains(settings, s) {
			delete(c.looked, s)
		}
	}
	for key := range c.tracks {
		if !slices.Contains(settings, key.by) {
			delete(c.tracks, key)
		}
	}
}

// forget what was known of nodes that are gone.
func (c *Controller) forget(nodes []*corev1.Node) {
	there, named := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		there[string(n.UID)], named[n.Name] = true, true
	}
	for key := range c.tracks {
		if !there[key.node] {
			delete(c.tracks, key)
		}
	}
	for workload, at := range c.reported {
		if c.Clock.Since(at) > c.Options.WorkloadCooldown {
			delete(c.reported, workload)
		}
	}
	c.forgetSeries(named)
}
