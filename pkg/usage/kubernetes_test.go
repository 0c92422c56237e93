package usage_test

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// metricsCRDs have the API server itself serve metrics.k8s.io.
const metricsCRDs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodes.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for tests"}}
spec:
  group: metrics.k8s.io
  scope: Cluster
  names: {kind: NodeMetrics, plural: nodes, listKind: NodeMetricsList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pods.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for tests"}}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {kind: PodMetrics, plural: pods, listKind: PodMetricsList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

func object(kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion("metrics.k8s.io/v1beta1")
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// Both before and after somebody serves metrics.k8s.io, as one process sees it.
func TestMetricsAPI(t *testing.T) {
	plane, err := apiserver.Shared()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(apiserver.Config(t), client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	source := &usage.MetricsAPI{Reader: api}
	_, err = source.Nodes(t.Context(), nil)
	expectError(t, err, usage.SourceMetricsAPI, usage.KindNotInstalled, "metrics.k8s.io/v1beta1")
	if err := plane.ApplyCRDs(t.Context(), []byte(metricsCRDs)); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*unstructured.Unstructured{
		object("NodeMetrics", "", "a", map[string]any{"timestamp": at.Format(time.RFC3339), "window": "15s", "usage": map[string]any{"cpu": "1600m", "memory": "1Gi"}}),
		object("NodeMetrics", "", "nano", map[string]any{"timestamp": at.Format(time.RFC3339), "usage": map[string]any{"cpu": "3200000000n"}}),
		object("PodMetrics", "default", "web", map[string]any{"timestamp": at.Format(time.RFC3339), "containers": []any{
			map[string]any{"name": "app", "usage": map[string]any{"cpu": "250m", "memory": "64Mi"}}, map[string]any{"name": "side", "usage": map[string]any{"cpu": "250m"}},
		}}),
	} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(t.Context(), o) })
	}
	empty := node("b")
	empty.Status.Allocatable = nil
	got, err := source.Nodes(t.Context(), []*corev1.Node{node("a"), node("nano"), empty, node("c")})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, map[string]string{"a": "50/25", "nano": "100/?"})
	if !got["a"].CPU.At.Equal(at) {
		t.Errorf("it is of %s", got["a"].CPU.At)
	}
	pods, err := source.Pods(t.Context())
	if want := (usage.Amount{CPU: 0.5, Memory: 64 << 20}); err != nil || pods[types.NamespacedName{Namespace: "default", Name: "web"}] != want {
		t.Errorf("%v, %v", pods, err)
	}
	bad := object("NodeMetrics", "", "z", map[string]any{"timestamp": at.Format(time.RFC3339), "usage": map[string]any{"cpu": "much"}})
	if err := api.Create(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	_, err = source.Nodes(t.Context(), nil)
	expectError(t, err, usage.SourceMetricsAPI, usage.KindBadAnswer, "z")
	if err := api.Delete(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsAreThoseOfPodsThatAreNotOver(t *testing.T) {
	api := apiserver.Client(t, apiserver.Scheme(t))
	pod := func(name, on, cpu, memory string, phase corev1.PodPhase) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{
			Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}},
		}}}}
		if err := api.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = phase
		if err := api.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { apiserver.Empty(t, api, &corev1.PodList{}) })
	// What the SDI Migration Service reads as nothing: plain exponents, k, M and G (and E, of which no node has one).
	pod("one", "a", "1", "1G", corev1.PodRunning)
	pod("two", "a", "500m", "1e9", corev1.PodPending)
	pod("three", "a", "0.3", "1294966296", corev1.PodRunning)
	pod("four", "a", "100m", "500M", corev1.PodRunning)
	pod("five", "a", "100m", "500001k", corev1.PodRunning)
	pod("over", "a", "2", "4Gi", corev1.PodSucceeded)
	pod("elsewhere", "", "2", "4Gi", corev1.PodPending)
	got, err := (&usage.Requests{Reader: api, Now: now}).Nodes(t.Context(), []*corev1.Node{node("a"), node("b"), {ObjectMeta: metav1.ObjectMeta{Name: "c"}}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, map[string]string{"a": "50/50", "b": "0/0", "c": "?/?"})
}
