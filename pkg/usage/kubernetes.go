package usage

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MetricsAPI reads metrics.k8s.io, which metrics-server or an adapter serves. A node's usage is compared with what is
// allocatable there, as kubectl top does.
type MetricsAPI struct {
	// Reader asks the API server itself: these objects cannot be watched.
	Reader client.Reader
}

// Name implements Source.
func (m *MetricsAPI) Name() string { return SourceMetricsAPI }

// measured is a NodeMetrics or PodMetrics.
type measured struct {
	metav1.ObjectMeta `json:"metadata"`
	Timestamp         metav1.Time         `json:"timestamp"`
	Usage             corev1.ResourceList `json:"usage"`
	Containers        []struct {
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// Nodes implements Source.
func (m *MetricsAPI) Nodes(ctx context.Context, nodes []*corev1.Node) (map[string]Usage, error) {
	list, err := m.list(ctx, "NodeMetricsList")
	if err != nil {
		return nil, err
	}
	byName := map[string]measured{}
	for _, item := range list {
		byName[item.Name] = item
	}
	out := map[string]Usage{}
	for _, n := range nodes {
		if item, ok := byName[n.Name]; ok {
			has := n.Status.Allocatable
			out[n.Name] = Usage{
				CPU:    share(item.Usage, has, corev1.ResourceCPU, item.Timestamp.Time),
				Memory: share(item.Usage, has, corev1.ResourceMemory, item.Timestamp.Time),
			}
		}
	}
	return out, nil
}

// Pods implements PodSource.
func (m *MetricsAPI) Pods(ctx context.Context) (map[types.NamespacedName]Amount, error) {
	list, err := m.list(ctx, "PodMetricsList")
	if err != nil {
		return nil, err
	}
	out := map[types.NamespacedName]Amount{}
	for _, item := range list {
		var sum Amount
		for _, c := range item.Containers {
			sum.CPU += c.Usage.Cpu().AsApproximateFloat64()
			sum.Memory += c.Usage.Memory().AsApproximateFloat64()
		}
		out[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = sum
	}
	return out, nil
}

func (m *MetricsAPI) list(ctx context.Context, kind string) ([]measured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: kind})
	if err := m.Reader.List(ctx, list); err != nil {
		return nil, named(m.Name(), err)
	}
	out := make([]measured, len(list.Items))
	for i, item := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &out[i]); err != nil {
			return nil, bad(m.Name(), "%s %s: %w", item.GetKind(), item.GetName(), err)
		}
	}
	return out, nil
}

// share is what part of a resource is in use. Without one of the two it is unknown.
func share(used, has corev1.ResourceList, name corev1.ResourceName, at time.Time) Value {
	amount, measured := used[name]
	all, there := has[name]
	if !measured || !there || all.Sign() <= 0 {
		return Value{}
	}
	return Value{Ratio: amount.AsApproximateFloat64() / all.AsApproximateFloat64(), At: at}
}
