package optimizer

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/packing"
)

const (
	// packingPeriod is how often the cheapest packing is looked for.
	packingPeriod = time.Minute
	// packingTimeout bounds the search. The bound that it has proven by then is valid.
	packingTimeout = 2 * time.Second
	// packingAge is for how long a packing is told.
	packingAge = 3 * packingPeriod
)

// FleetCost publishes how far the cluster is from the cheapest packing of the pods that run.
type FleetCost struct {
	Readings *Readings
	Clock    clock.PassiveClock

	shapes   shapeCache
	last     fleetPacking
	solution packing.Solution
	solved   bool
	unknown  string // why the bound was unknown the last time
}

// Register adds the controller to a manager.
func (c *FleetCost) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named("fleetcost").WatchesRawSource(singleton.Source()).Complete(singleton.AsReconciler(c))
}

// Reconcile looks for the cheapest packing, unless it is the one of the last time.
func (c *FleetCost) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	fleet, m, err := c.Readings.readFleet(ctx)
	if err != nil {
		c.Readings.keepPacking(nil)
		metrics.ForgetFleetCost()
		return reconciler.Result{}, err
	}
	f := packingOf(fleet, m, &c.shapes)
	p, unknown, err := c.solve(ctx, f, m)
	if unknown != c.unknown && unknown != "" {
		log.FromContext(ctx).Info("the cheapest packing of the pods is not known", "reason", unknown)
	}
	c.unknown = unknown
	c.Readings.keepPacking(p)
	if p == nil {
		metrics.ForgetFleetCost()
	} else {
		metrics.ObserveFleetCost(p.CostPerHour, p.LowestCostPerHour, p.PackedCostPerHour)
	}
	return reconciler.Result{RequeueAfter: packingPeriod}, err
}

// solve returns nil where something is not known, and what.
func (c *FleetCost) solve(ctx context.Context, f fleetPacking, m market) (p *kcloudv1alpha1.Packing, unknown string, err error) {
	switch {
	case len(m.unread) > 0: // it may offer cheaper ones
		return nil, "the cloud provider does not say which machines NodePool " + name(m.unread) + " may open", nil
	case len(f.unpriced) > 0:
		return nil, "the price of node " + name(f.unpriced) + " is unknown", nil
	case f.kinds > packing.MaxGroups:
		return nil, fmt.Sprintf("the pods ask for %d different things of their nodes; at most %d are looked at", f.kinds, packing.MaxGroups), nil
	}
	if !c.solved || !f.equals(c.last) {
		limited, cancel := context.WithTimeout(ctx, packingTimeout)
		defer cancel()
		c.solved = false
		if c.solution, err = packing.Solve(limited, f.types, f.groups); err != nil {
			return nil, "", err
		}
		c.last, c.solved = f, true
	}
	// The machines that are there are a packing, too.
	return &kcloudv1alpha1.Packing{
		Time: metav1.NewTime(c.Clock.Now().Truncate(time.Second)), Pods: f.pods,
		CostPerHour: round(f.cost, 6), LowestCostPerHour: floor(min(c.solution.Bound, f.cost), 6), PackedCostPerHour: round(min(c.solution.Cost, f.cost), 6),
	}, "", nil
}

// floor rounds a lower bound down.
func floor(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Floor(x*scale) / scale
}
