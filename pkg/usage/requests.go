package usage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Requests takes what pods request for what they use, as the SDI Migration Service does: the requests of the pods of a node
// that are not over, of the node's capacity. It needs nobody who measures, and does not see who exceeds his requests.
type Requests struct {
	Reader client.Reader
	Now    func() time.Time
}

// Name implements Source.
func (r *Requests) Name() string { return SourceRequests }

// Nodes implements Source.
func (r *Requests) Nodes(ctx context.Context, nodes []*corev1.Node) (map[string]Usage, error) {
	pods := &corev1.PodList{}
	if err := r.Reader.List(ctx, pods); err != nil {
		return nil, named(r.Name(), fmt.Errorf("listing pods: %w", err))
	}
	sums := map[string]Amount{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		asked, sum := Requested(p), sums[p.Spec.NodeName]
		sums[p.Spec.NodeName] = Amount{CPU: sum.CPU + asked.CPU, Memory: sum.Memory + asked.Memory}
	}
	now, out := r.Now(), map[string]Usage{}
	for _, n := range nodes {
		sum := sums[n.Name]
		out[n.Name] = Usage{
			CPU:    part(sum.CPU, n.Status.Capacity.Cpu().AsApproximateFloat64(), now),
			Memory: part(sum.Memory, n.Status.Capacity.Memory().AsApproximateFloat64(), now),
		}
	}
	return out, nil
}

// Requested is what a pod's containers, init containers and overhead request, as the scheduler counts it.
func Requested(p *corev1.Pod) Amount {
	list := resource.PodRequests(p, resource.PodResourcesOptions{})
	return Amount{CPU: list.Cpu().AsApproximateFloat64(), Memory: list.Memory().AsApproximateFloat64()}
}

func part(sum, all float64, at time.Time) Value {
	if all <= 0 {
		return Value{}
	}
	return Value{Ratio: sum / all, At: at}
}
