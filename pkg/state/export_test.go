package state

import (
	"fmt"

	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Dump is everything that a snapshot knows and derives, in an order of its own: two snapshots are the
// same when their dumps are.
func (s *Snapshot) Dump() []string {
	var out []string
	add := func(kind string, v any) { out = append(out, fmt.Sprintf("%s %+v", kind, v)) }
	for k, v := range s.pods.all() {
		p := *v
		p.placement, p.Preempting, p.Governed = nil, nil, nil
		add("pod "+k.first, p)
		for _, g := range v.Governed {
			rivals := []types.UID{}
			for _, r := range g.Rivals {
				rivals = append(rivals, r.UID)
			}
			add("governed "+k.first, fmt.Sprint(g.Container, g.McKube.UID, rivals, g.Server, g.Err, g.Claim, len(g.Further)))
		}
	}
	for _, n := range s.views.all() {
		add("node "+n.Name, fmt.Sprint(n.UID, n.Ready, n.Schedulable, n.Deleting, n.Busy, n.Offered, n.Backend, n.Granularity, n.Agent, n.Stale, n.Cores, n.Problems))
		for _, v := range n.Servers {
			add("server", fmt.Sprint(v.Server, v.PodUID, v.McKube != nil, v.Claim, v.Claimed, v.Witness, v.Physical, v.Running, v.Spec, v.Applied))
		}
	}
	for _, shelf := range s.index.classes {
		add("shelf", fmt.Sprint(shelf.class, entriesOf(shelf.free), entriesOf(shelf.numbers), entriesOf(shelf.reach[0][0]), entriesOf(shelf.reach[0][1]),
			entriesOf(shelf.reach[0][2]), entriesOf(shelf.reach[1][0]), entriesOf(shelf.reach[1][1]), entriesOf(shelf.reach[1][2])))
	}
	for name, t := range map[string]links{
		"nodeSlices": s.nodeSlices, "byPodname": s.byPodname, "byLabel": s.byLabel, "podClaims": s.podClaims, "nodeClaims": s.nodeClaims,
		"preempting": s.preempting, "governs": s.governs, "nodePods": s.nodePods,
	} {
		add(name, entriesOf(t))
	}
	slices.Sort(out)
	return out
}

func entriesOf[K ordered[K]](t set[K]) []string {
	var out []string
	for k := range t.all() {
		switch k := any(k).(type) {
		case byBandwidth:
			out = append(out, fmt.Sprint(k.node.name, k.core, k.ppm))
		case byNumber:
			out = append(out, fmt.Sprint(k.node.name, k.core, k.ppm))
		default:
			out = append(out, fmt.Sprint(k))
		}
	}
	return out
}
