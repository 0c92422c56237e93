package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

const (
	// endToEndPods is the number of pending pods, in deployments of podsPerDeployment.
	endToEndPods      = 1000
	podsPerDeployment = 100
	endToEndTimeout   = 5 * time.Minute
	pollInterval      = 200 * time.Millisecond
)

// measureEndToEnd lets pods pend on a control plane without a NodePool, adds one, and measures the
// time until the last pod is bound to a node that really joined, and the controller's largest heap
// from its start to then.
func measureEndToEnd(ctx context.Context, controller string) ([]report.Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, endToEndTimeout)
	defer cancel()
	ports, err := process.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	s, err := stack.Start(ctx, stack.Options{
		Progress:       os.Stderr,
		Controller:     controller,
		ControllerArgs: []string{fmt.Sprintf("--metrics-port=%d", ports[0])},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the stack: %w", err)
	}
	figures, err := bindAll(ctx, s, ports[0])
	return figures, errors.Join(err, s.Stop())
}

func bindAll(ctx context.Context, s *stack.Stack, metricsPort int) ([]report.Figure, error) {
	kube, err := client.New(s.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	heap, err := watchHeap(ctx, kube, metricsPort)
	if err != nil {
		return nil, err
	}
	for i := range endToEndPods / podsPerDeployment {
		if err := kube.Create(ctx, deployment(i)); err != nil {
			return nil, fmt.Errorf("creating deployment %d: %w", i, err)
		}
	}
	if err := waitForPods(ctx, kube, func(*corev1.Pod) bool { return true }); err != nil {
		return nil, fmt.Errorf("waiting for %d pending pods: %w", endToEndPods, err)
	}
	start := time.Now()
	if err := errors.Join(kube.Create(ctx, nodeClass()), kube.Create(ctx, nodePool())); err != nil {
		return nil, fmt.Errorf("creating the node pool: %w", err)
	}
	if err := waitForPods(ctx, kube, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); err != nil {
		return nil, fmt.Errorf("waiting for %d bound pods: %w", endToEndPods, err)
	}
	seconds := time.Since(start).Seconds()
	peak, samples, err := heap.stop()
	if err != nil {
		return nil, err
	}
	return []report.Figure{
		{Key: "e2e_1000_pods_s", Value: seconds, Goal: "< 60", Note: "from the NodePool's creation to the last of 1,000 pending pods bound"},
		{Key: "peak_heap_mb", Value: peak / 1e6, Goal: "< 120", Note: fmt.Sprintf("largest go_memstats_heap_alloc_bytes of %d samples, MB", samples)},
	}, nil
}

// waitForPods waits until all pods exist and satisfy done. It reads metadata-light lists rather than
// watching: what it costs the API server is the same in every run.
func waitForPods(ctx context.Context, kube client.Client, done func(*corev1.Pod) bool) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		var pods corev1.PodList
		if err := kube.List(ctx, &pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		count := 0
		for i := range pods.Items {
			if done(&pods.Items[i]) {
				count++
			}
		}
		if count >= endToEndPods {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods: %w", count, endToEndPods, ctx.Err())
		case <-ticker.C:
		}
	}
}

func deployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app": fmt.Sprintf("bench-%d", i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(podsPerDeployment)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name:  "app",
					Image: "app",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(250*(1+i%4)), resource.DecimalSI),
						corev1.ResourceMemory: *resource.NewQuantity(int64(512*(1+i%3))<<20, resource.BinarySI),
					}},
				}}},
			},
		},
	}
}

func nodeClass() *kwokv1alpha1.KWOKNodeClass {
	return &kwokv1alpha1.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
}

func nodePool() *v1.NodePool {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "bench"}
	pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{
		Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand},
	}}
	pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("Never")
	return pool
}

// gauge reads one gauge without labels out of the text exposition format.
func gauge(text []byte, name string) (float64, error) {
	for line := range bytes.Lines(text) {
		var value float64
		if _, err := fmt.Sscanf(string(line), name+" %g", &value); err == nil {
			return value, nil
		}
	}
	return 0, fmt.Errorf("metric %s is not there", name)
}
