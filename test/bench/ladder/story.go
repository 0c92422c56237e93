package main

import (
	"context"
	"fmt"
	"os"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	appsv1 "k8s.io/api/apps/v1"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

const (
	pollEvery    = time.Second
	readyTimeout = 10 * time.Minute
	// storyLength is from the first pod on.
	storyLength = 2 * time.Minute
)

// workload is a Deployment with its McKube.
type workload struct {
	namespace, name string
	criticality     mcoperatorv1.Criticality
	replicas        int32
	low, high       int64 // percent of a core
	cpu             string
	script          string
}

// plant is the story of the comparison: 28 containers of which the critical ones need their high budget for a minute,
// beside some that are late while more than seven tenths of their core are promised, which no admission can foresee. What they request of
// the CPU is what a careful operator would: as much of the 4.9 that a node offers as their high budgets are of its 3.6 real-time cores, so that kube-scheduler, which
// knows nothing of cores, puts on no node more than its cores hold together.
func plant() []workload {
	return []workload{
		{"default", "control", mcoperatorv1.CriticalityHigh, 6, 15, 30, "410m", "30s need 30; 90s need 10"},
		{"default", "vision", mcoperatorv1.CriticalityMiddle, 6, 15, 20, "275m", "30s miss-while-crowded 70"},
		{"default", "batch", mcoperatorv1.CriticalityLow, 16, 20, 20, "275m", "0s need 20"},
	}
}

func (w workload) mckube() *mcoperatorv1.McKube {
	m := test.McKube(w.name, w.low, test.Critical(w.criticality), test.MayRiseTo(w.high), test.GovernsWorkload(w.name), test.In(w.namespace))
	m.Spec.PressuredDeadlinesTotal, m.Spec.PressuredDeadlinesPeriod = ptr.To(int32(5)), ptr.To(int32(5))
	return m
}

func (w workload) deployment() *appsv1.Deployment {
	return test.Deployment(w.name, w.replicas, w.cpu, test.RealTime(), test.InNamespace(w.namespace), func(t *test.PodTemplate) {
		if w.script != "" {
			t.Annotations = map[string]string{hollow.AnnotationScript: w.script}
		}
	})
}

// prepare makes the pool and the McKubes, and waits until pods can be made.
func (w *world) prepare(ctx context.Context, pool *karpenterv1.NodePool, workloads []workload) error {
	objects := []client.Object{test.NodeClass(), pool}
	for _, l := range workloads {
		objects = append(objects, l.mckube())
	}
	if err := w.create(ctx, objects...); err != nil {
		return err
	}
	if !w.prepared {
		return nil
	}
	return w.await(ctx, "the claim templates", func(ctx context.Context) (bool, string, error) {
		list := &resourcev1.ResourceClaimTemplateList{}
		err := w.client.List(ctx, list)
		return len(list.Items) >= len(workloads), fmt.Sprintf("%d of %d", len(list.Items), len(workloads)), err
	})
}

// deploy makes the pods.
func (w *world) deploy(ctx context.Context, workloads []workload) error {
	var objects []client.Object
	for _, l := range workloads {
		objects = append(objects, l.deployment())
	}
	return w.create(ctx, objects...)
}

func (w *world) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		what := fmt.Sprintf("%T %s", o, o.GetName())
		if err := w.await(ctx, what, func(ctx context.Context) (bool, string, error) {
			err := client.IgnoreAlreadyExists(w.client.Create(ctx, o))
			return err == nil, "", err
		}); err != nil {
			return err
		}
	}
	return nil
}

// await polls until it is so, for as long as getting ready may take.
func (w *world) await(ctx context.Context, what string, is func(context.Context) (bool, string, error)) error {
	return w.awaitFor(ctx, readyTimeout, what, is)
}

func (w *world) awaitFor(ctx context.Context, limit time.Duration, what string, is func(context.Context) (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	words := ""
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		ok, found, err := is(ctx)
		if err != nil && !passing(err) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if err != nil {
			ok, found = false, err.Error()
		}
		if found != words {
			fmt.Fprintf(os.Stderr, "  %s: %s\n", what, found)
			words = found
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %s: %w", what, found, ctx.Err())
		case <-ticker.C:
		}
	}
}

// passing tells whether a fault passes: an API server that is overwhelmed does not end a measurement, it makes it worse.
func passing(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// edge is the pool of the stories: one node at a time may be disrupted.
func edge() *karpenterv1.NodePool {
	return test.RTNodePool("edge", "four-cores", test.Budgets(test.Budget("1")))
}

// compare tells the plant's story in a world and measures it.
func compare(ctx context.Context, w *world) (outcome, error) {
	if err := w.prepare(ctx, edge(), plant()); err != nil {
		return outcome{}, err
	}
	record, err := newRecord(ctx, w.client, plant())
	if err != nil {
		return outcome{}, err
	}
	defer record.stop()
	if err := w.deploy(ctx, plant()); err != nil {
		return outcome{}, err
	}
	select {
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	case <-time.After(storyLength):
	}
	return record.outcome(ctx)
}

// replicas are how many containers there should be, and how many of them of criticality High.
func replicas(workloads []workload) (all, high int) {
	for _, l := range workloads {
		all += int(l.replicas)
		if l.criticality == mcoperatorv1.CriticalityHigh {
			high += int(l.replicas)
		}
	}
	return all, high
}
