package main

import (
	"context"
	"fmt"
	"os"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
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
// beside some that are late while their core is crowded.
func plant() []workload {
	return []workload{
		{"default", "control", mcoperatorv1.CriticalityHigh, 6, 15, 30, "150m", "30s need 30; 90s need 10"},
		{"default", "vision", mcoperatorv1.CriticalityMiddle, 6, 15, 20, "150m", "30s miss-while-crowded 85"},
		{"default", "batch", mcoperatorv1.CriticalityLow, 16, 20, 20, "200m", "0s need 20"},
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

// begin makes the pool, the McKubes and then the pods.
func (w *world) begin(ctx context.Context, pool *karpenterv1.NodePool, workloads []workload) error {
	objects := []client.Object{test.NodeClass(), pool}
	for _, l := range workloads {
		objects = append(objects, l.mckube())
	}
	if err := w.create(ctx, objects...); err != nil {
		return err
	}
	if w.prepared {
		if err := w.await(ctx, "the claim templates", func(ctx context.Context) (bool, string, error) {
			list := &resourcev1.ResourceClaimTemplateList{}
			err := w.client.List(ctx, list)
			return len(list.Items) >= len(workloads), fmt.Sprintf("%d of %d", len(list.Items), len(workloads)), err
		}); err != nil {
			return err
		}
	}
	objects = nil
	for _, l := range workloads {
		objects = append(objects, l.deployment())
	}
	return w.create(ctx, objects...)
}

func (w *world) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := client.IgnoreAlreadyExists(w.client.Create(ctx, o)); err != nil {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// await polls until it is so.
func (w *world) await(ctx context.Context, what string, is func(context.Context) (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	words := ""
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		ok, found, err := is(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
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

// edge is the pool of the stories: one node at a time may be disrupted.
func edge() *karpenterv1.NodePool {
	return test.RTNodePool("edge", "four-cores", test.Budgets(test.Budget("1")))
}

// compare tells the plant's story in a world and measures it.
func compare(ctx context.Context, w *world) (outcome, error) {
	record, err := newRecord(ctx, w.client)
	if err != nil {
		return outcome{}, err
	}
	defer record.stop()
	if err := w.begin(ctx, edge(), plant()); err != nil {
		return outcome{}, err
	}
	select {
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	case <-time.After(storyLength):
	}
	o, err := record.outcome(ctx)
	if err == nil && o.served < replicas(plant()) {
		// Who serves nobody misses nothing: the figures would say the opposite of what was.
		fmt.Fprintf(os.Stderr, "only %d of %d containers ever had a budget\n", o.served, replicas(plant()))
	}
	return o, err
}

func replicas(workloads []workload) int {
	total := 0
	for _, l := range workloads {
		total += int(l.replicas)
	}
	return total
}
