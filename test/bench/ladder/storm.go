package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/samber/lo"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

const (
	// stormLimit bounds how long a storm may take to settle.
	stormLimit = 15 * time.Minute
	// calm is how long nothing may happen until it has settled.
	calm = 10 * time.Second
)

// stormScript has a container overrun for as long as its core is crowded.
const stormScript = "0s overrun-while-crowded 78"

// army is the workload of a storm of so many pods, in namespaces of 100. A third of it is called control and vision:
// those will overrun. Twenty fill a node by their CPU requests. kube-scheduler fills one core after the other, six containers each, so that the last core of a node
// has two; five on each are few enough.
func army(pods int) []workload {
	var all []workload
	for i := range pods / 100 {
		in := fmt.Sprintf("cell-%d", i)
		all = append(all,
			workload{in, "control", mcoperatorv1.CriticalityHigh, 20, 14, 14, "240m", ""},
			workload{in, "vision", mcoperatorv1.CriticalityMiddle, 14, 14, 14, "240m", ""},
			workload{in, "batch", mcoperatorv1.CriticalityLow, 66, 14, 14, "240m", ""},
		)
	}
	return all
}

// stormFigures are what a storm took.
type stormFigures struct {
	outcome
	measured    bool // the storm was recorded to its end
	nodesBefore int
	converged   time.Duration // until nothing overruns, waits or runs
	calmed      time.Duration // until no node is tainted either
	peak        int           // nodes under pressure at once
	rush        outcome       // of the critical pods that come when it is over
	rushed      bool          // they were recorded to their end
}

// storm lets a third of the pods overrun at once and measures how it settles.
func storm(ctx context.Context, w *world, pods int) (stormFigures, error) {
	var f stormFigures
	workloads := army(pods)
	for _, l := range workloads {
		if err := w.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}); err != nil {
			return f, err
		}
	}
	if err := w.prepare(ctx, edge(), append(slices.Clone(workloads), rush(pods))); err != nil {
		return f, err
	}
	if err := w.pioneer(ctx, pods/perNode); err != nil {
		return f, err
	}
	if err := w.deploy(ctx, workloads); err != nil {
		return f, err
	}
	if err := w.await(ctx, "pods on cores", func(ctx context.Context) (bool, string, error) {
		s, err := w.look(ctx)
		f.nodesBefore = s.nodes
		return s.placed >= pods/100*100, fmt.Sprintf("%d of %d on %d nodes", s.placed, pods, s.nodes), err
	}); err != nil {
		return f, err
	}
	if err := w.strikeAndSettle(ctx, workloads, &f); err != nil {
		return f, err
	}
	var err error
	f.rush, f.rushed, err = w.rushIn(ctx, workloads, pods)
	return f, err
}

// strikeAndSettle records the storm itself.
func (w *world) strikeAndSettle(ctx context.Context, workloads []workload, f *stormFigures) error {
	record, err := newRecord(ctx, w.client, workloads)
	if err != nil {
		return err
	}
	defer record.stop()
	if err := w.strike(ctx, history.Live[*corev1.Pod](record.recorder)); err != nil {
		return err
	}
	unsettled := w.settle(ctx, record, f)
	f.outcome, err = record.outcome(ctx)
	f.measured = err == nil
	return errors.Join(unsettled, err)
}

// perNode is how many pods of the storm a node takes by their requests.
const perNode = 20

// pioneer has nodes opened, each by a pod that takes more than half of one, and leaves them empty. kube-scheduler then finds a place for each
// pod at its first look; without, it looks at thousands in vain, again and again, which takes ten times as long.
func (w *world) pioneer(ctx context.Context, nodes int) error {
	d := test.Deployment("pioneer", int32(nodes), "2600m") //nolint:gosec // some hundreds
	if err := w.create(ctx, d); err != nil {
		return err
	}
	here := func(ctx context.Context) (running, all int, err error) {
		pods := &corev1.PodList{}
		err = w.client.List(ctx, pods, client.MatchingLabels{test.Label: d.Name})
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running, len(pods.Items), err
	}
	if err := w.await(ctx, "nodes", func(ctx context.Context) (bool, string, error) {
		running, _, err := here(ctx)
		return running == nodes, fmt.Sprintf("%d of %d", running, nodes), err
	}); err != nil {
		return err
	}
	if err := w.client.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("deleting the pioneers: %w", err)
	}
	return w.await(ctx, "pioneers that leave", func(ctx context.Context) (bool, string, error) {
		_, all, err := here(ctx)
		return all == 0, fmt.Sprintf("%d left", all), err
	})
}

// strikers is how many pods are struck side by side.
const strikers = 16

// strike has every pod of the workloads control and vision overrun from now on.
func (w *world) strike(ctx context.Context, pods []*corev1.Pod) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, hollow.AnnotationScript, stormScript))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(strikers)
	for _, known := range pods {
		if name := known.Labels[test.Label]; name != "control" && name != "vision" {
			continue
		}
		all.Go(func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: known.Namespace, Name: known.Name}}
			if err := w.client.Patch(ctx, pod, patch); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("giving pod %s its script: %w", pod.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// settle follows the storm until it is over.
func (w *world) settle(ctx context.Context, r *record, f *stormFigures) error {
	begun, last := time.Now(), time.Now()
	overruns := int64(-1)
	return w.awaitFor(ctx, stormLimit, "the storm", func(context.Context) (bool, string, error) {
		s := stateOf(history.Live[*corev1.Node](r.recorder), history.Live[*v1alpha1.RTNode](r.recorder), history.Live[*v1alpha1.RTAction](r.recorder))
		now := time.Now()
		if s.overruns != overruns || s.underway > 0 {
			overruns, last = s.overruns, now
		}
		f.peak = max(f.peak, s.pressed)
		if now.Sub(last) < calm {
			f.converged, f.calmed = 0, 0
		} else if f.converged == 0 {
			f.converged = last.Sub(begun)
		}
		if f.converged > 0 && s.tainted == 0 && s.pressed == 0 {
			f.calmed = now.Sub(begun)
		}
		return f.calmed > 0, fmt.Sprintf("%d of %d nodes under pressure, %d tainted, %d actions under way, %d over, %d of the pods on cores",
			s.pressed, s.nodes, s.tainted, s.underway, s.over, s.placed), nil
	})
}

// clusterState is a look at a cluster.
type clusterState struct {
	nodes, placed, pressed, tainted, underway, over int
	overruns                                        int64
}

// look asks the API server.
func (w *world) look(ctx context.Context) (clusterState, error) {
	nodes, rtNodes, actions := &corev1.NodeList{}, &v1alpha1.RTNodeList{}, &v1alpha1.RTActionList{}
	for _, list := range []client.ObjectList{nodes, rtNodes, actions} {
		if err := w.client.List(ctx, list); err != nil {
			return clusterState{}, fmt.Errorf("listing: %w", err)
		}
	}
	return stateOf(lo.ToSlicePtr(nodes.Items), lo.ToSlicePtr(rtNodes.Items), lo.ToSlicePtr(actions.Items)), nil
}

func stateOf(nodes []*corev1.Node, rtNodes []*v1alpha1.RTNode, actions []*v1alpha1.RTAction) clusterState {
	s := clusterState{nodes: len(nodes)}
	for _, node := range nodes {
		if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == mcoperatorv1.TaintPressure }) {
			s.tainted++
		}
	}
	for _, node := range rtNodes {
		status := &node.Status
		if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionRTPressure) {
			s.pressed++
		}
		for _, server := range status.Servers {
			s.overruns += server.Overruns
			if server.BudgetUs > 0 && server.Error == "" {
				s.placed++
			}
		}
	}
	for _, action := range actions {
		switch action.Status.Phase {
		case "Waiting", "Running", "RollingBack":
			s.underway++
		default:
			s.over++
		}
	}
	return s
}
