package disruption

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/placement"
)

// vacancy is what other nodes have beside cores, at this moment, for the pods of nodes that are about to be deleted. The
// simulation that the command was made of is minutes old by then: a pod that was pending meanwhile may be on the replacement
// now.
type vacancy struct {
	places *placement.Simulator
	rooms  map[string]placement.Room
	// leaving are the pods of the nodes, gone the same for the simulator.
	leaving map[types.UID]*corev1.Pod
	gone    map[types.UID]bool
	// coming are those that were given a place, by their nodes.
	coming map[string][]*corev1.Pod
	// err is the first error; from then on there is no room.
	err error
}

// vacancies looks at the pods of nodes that go together.
func (g *Gate) vacancies(ctx context.Context, nodes []string) (*vacancy, error) {
	v := &vacancy{
		places: g.places, rooms: g.places.Rooms(),
		leaving: map[types.UID]*corev1.Pod{}, gone: map[types.UID]bool{}, coming: map[string][]*corev1.Pod{},
	}
	for _, node := range nodes {
		pods := &corev1.PodList{}
		if err := g.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			v.leaving[pod.UID], v.gone[pod.UID] = pod, true
		}
	}
	return v, nil
}

// room tells whether a node takes a pod beside those that come there already, and gives it the place. Requests are looked at first: the
// simulation of all else takes a thousand times as long.
func (v *vacancy) room(ctx context.Context) func(types.UID, string) bool {
	return func(uid types.UID, node string) bool {
		pod, ok := v.leaving[uid]
		if !ok {
			return true // it has left
		}
		all := append(slices.Clip(v.coming[node]), pod)
		if v.err != nil || !resources.Fits(resources.RequestsForPods(all...), v.rooms[node].Available) {
			return false
		}
		why, err := v.places.Asking(all...)(ctx, node, v.gone)
		if err != nil || why != "" {
			v.err = err
			return false
		}
		v.coming[node] = all
		return true
	}
}
