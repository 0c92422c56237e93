package ladder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// machines reports the resources of nodes other than cores, from the cache. It reads each node once and keeps the first error.
type machines struct {
	client client.Reader
	ctx    context.Context //nolint:containedctx // it lives as long as one plan
	rooms  map[string]room
	asks   map[types.UID]corev1.ResourceList
	err    error
}

// room is what a node has, and what is requested there, if there is such a node.
type room struct {
	there     bool
	has, used corev1.ResourceList
}

func machinesOf(ctx context.Context, from client.Reader) machines {
	return machines{client: from, ctx: ctx, rooms: map[string]room{}, asks: map[types.UID]corev1.ResourceList{}}
}

// fit tells whether a node has room for the requests of all given pods beside its running pods. A node or pod that cannot be
// read does not fit.
func (m *machines) fit(node string, views ...*state.PodView) bool {
	at := m.room(node)
	all := []corev1.ResourceList{at.used}
	for _, view := range views {
		asks := m.request(view)
		if asks == nil {
			return false
		}
		all = append(all, asks)
	}
	return m.err == nil && at.there && resources.Fits(resources.Merge(all...), at.has)
}

// room reads the resources of a node, once per node.
func (m *machines) room(node string) room {
	found, known := m.rooms[node]
	if known || m.err != nil {
		return found
	}
	var machine corev1.Node
	var pods corev1.PodList
	err := m.client.Get(m.ctx, client.ObjectKey{Name: node}, &machine)
	if err == nil {
		err = m.client.List(m.ctx, &pods, client.MatchingFields{"spec.nodeName": node})
	}
	if err == nil {
		var there []*corev1.Pod
		for i := range pods.Items {
			if o := &pods.Items[i]; o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
				there = append(there, o)
			}
		}
		found = room{there: true, has: machine.Status.Allocatable, used: resources.RequestsForPods(there...)}
	}
	m.rooms[node] = found
	m.keep(err, "node "+node+" has left")
	return found
}

// request reads the resource requests of a pod, once per pod. It is nil if the pod is gone.
func (m *machines) request(view *state.PodView) corev1.ResourceList {
	asks, known := m.asks[view.UID]
	if known || m.err != nil {
		return asks
	}
	pod := &corev1.Pod{}
	err := m.client.Get(m.ctx, view.Key(), pod)
	if err == nil {
		asks = resources.RequestsForPods(pod)
	}
	m.asks[view.UID] = asks
	m.keep(err, "pod "+view.Key().String()+" requests")
	return asks
}

// keep stores the first error, except NotFound.
func (m *machines) keep(err error, what string) {
	if m.err == nil && client.IgnoreNotFound(err) != nil {
		m.err = fmt.Errorf("reading what %s: %w", what, err)
	}
}

// passages tells how pods would go to other nodes. It asks once per pod and node. It keeps the errors, and the pods that it
// could not ask about.
type passages struct {
	ask   func(context.Context, *state.PodView, string) (Passage, error)
	ctx   context.Context //nolint:containedctx // it lives as long as one plan
	known map[passageKey]Passage

	unknown []string
	err     error
}

type passageKey struct {
	pod  types.UID
	node string
}

// of is how a pod would go to a node. If the question fails, the answer is a veto.
func (p *passages) of(pod *state.PodView, node string) Passage {
	key := passageKey{pod.UID, node}
	if found, ok := p.known[key]; ok {
		return found
	}
	found, err := p.ask(p.ctx, pod, node)
	if err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("asking how pod %s would go to another node: %w", pod.Key(), err))
		why := "pod " + pod.Key().String() + ": " + record.Short(err.Error(), longestWhy)
		if !slices.Contains(p.unknown, why) {
			p.unknown = append(p.unknown, why)
		}
		found = Passage{Veto: "it is not known how it would go"}
	}
	p.known[key] = found
	return found
}
