// Package sink hands each migration that is over to who stores measurements outside the cluster.
package sink

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/influx"
)

// Measurement is that of the SDI Migration Service.
const Measurement = "pod_migration"

// Writer keeps points until they are stored, and returns at once.
type Writer interface {
	Add(influx.Point) error
}

// Runner sends what a Writer keeps, until the context ends.
type Runner interface {
	Start(ctx context.Context) error
}

// Controller hands over one point for each PodMigration that is over. What was handed over by a process that died is handed
// over again: the point is the same, and takes its own place.
type Controller struct {
	Client client.Client
	Writer Writer
	// Runner is started with the controller, where it leads; nil: somebody else does.
	Runner Runner

	given map[types.UID]bool
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	if c.Runner != nil {
		if err := m.Add(manager.RunnableFunc(c.Runner.Start)); err != nil {
			return fmt.Errorf("adding the sink: %w", err)
		}
	}
	return ctrl.NewControllerManagedBy(m).Named("migrationsink").For(&v1alpha1.PodMigration{}).Complete(c)
}

// Reconcile hands over a migration, once, when it is over.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m := &v1alpha1.PodMigration{}
	if err := c.Client.Get(ctx, req.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	point, ok := PointOf(m)
	if !ok || c.given[m.UID] {
		return reconcile.Result{}, nil
	}
	if err := c.Writer.Add(point); err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("handing over PodMigration %s: %w", req, err))
	}
	c.remember(m.UID)
	return reconcile.Result{}, nil
}

// mostGiven bounds what is remembered: who is forgotten is handed over again, which changes nothing.
const mostGiven = 100_000

func (c *Controller) remember(uid types.UID) {
	if c.given == nil || len(c.given) >= mostGiven {
		c.given = map[types.UID]bool{}
	}
	c.given[uid] = true
}

// PointOf is what is stored of a migration that is over; ok is false while it is not, and of dry runs, which moved nothing.
// success is true when the pod runs elsewhere and is what it should be: a cold start where its state was to come along is none.
func PointOf(m *v1alpha1.PodMigration) (p influx.Point, ok bool) {
	if !m.Status.Phase.Over() || m.Spec.DryRun {
		return influx.Point{}, false
	}
	tags := map[string]string{
		"pod_name": m.Spec.PodName, "target_node": m.Spec.TargetNode,
		"success": strconv.FormatBool(m.Status.Phase == v1alpha1.MigrationSucceeded),
	}
	if s := m.Status.Source; s != nil {
		tags["source_node"] = s.Node
	}
	if t := m.Status.Target; t != nil && t.Node != "" {
		tags["target_node"] = t.Node
	}
	return influx.Point{Measurement: Measurement, Tags: tags, Fields: map[string]any{"migration_count": int64(1)}, Time: endOf(m)}, true
}

// endOf is when a migration was over; that it stays the same is what makes a repeated point the same.
func endOf(m *v1alpha1.PodMigration) time.Time {
	switch {
	case m.Status.CompletionTime != nil:
		return m.Status.CompletionTime.Time
	case m.Status.PhaseTime != nil:
		return m.Status.PhaseTime.Time
	}
	return m.CreationTimestamp.Time
}
