package migration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// tries is on how many nodes, from the roomiest, the placement of a pod is simulated.
const tries = 20

// Headroom is the share of a node's CPU or memory, whichever is scarcer, that is left beside what is requested there.
func Headroom(room placement.Room, coming corev1.ResourceList) float64 {
	least := 1.0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		all, left, more := room.Allocatable[name], room.Available[name], coming[name]
		if all.IsZero() {
			return 0
		}
		least = min(least, (left.AsApproximateFloat64()-more.AsApproximateFloat64())/all.AsApproximateFloat64())
	}
	return least
}

// candidate is a node that may take a pod.
type candidate struct {
	name string
	// headroom that it has after the move, cores of the most that a real-time core has left, in parts per million.
	headroom float64
	pressed  bool
}

// rank puts those first that the move does not bring under pressure, and of them those with the most headroom after it.
func rank(list []candidate) {
	slices.SortFunc(list, func(a, b candidate) int {
		if a.pressed != b.pressed {
			if a.pressed {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.headroom, a.headroom), cmp.Compare(a.name, b.name))
	})
}

// choose finds the node that a pod goes to: the one that was asked for, or that which takes it and then has most headroom, of
// those of a filter. The refusal says why there is none.
func (r *Reconciler) choose(ctx context.Context, q question, only func(*state.Snapshot, string) string) (string, *refusal, error) {
	snapshot := r.Store.Snapshot()
	if q.asked != "" {
		why, err := r.takes(ctx, snapshot, q, q.asked, only)
		if why != "" {
			return "", &refusal{ReasonTargetRefused, why}, err
		}
		return q.asked, nil, err
	}
	last, list := "there is no other node", r.candidates(ctx, snapshot, q)
	if len(list) == 0 {
		why, err := r.excluded(ctx, snapshot, q, only)
		if err != nil {
			return "", nil, err
		}
		last = cmp.Or(why, last)
	}
	for _, c := range list {
		if slices.Contains(q.tried, c.name) {
			continue
		}
		if c.pressed && !q.trigger.Protective() && q.trigger != v1alpha1.TriggerManual {
			last = fmt.Sprintf("node %s would itself be under pressure", c.name)
			continue
		}
		why, err := r.takes(ctx, snapshot, q, c.name, only)
		if err != nil {
			return "", nil, err
		}
		if why == "" {
			return c.name, nil, nil
		}
		last = why
	}
	return "", &refusal{ReasonNoTarget, "no node takes the pod: " + last}, nil
}

// excluded is why a node does not take the pod, where none does: the first by name that has a reason. Empty: there is no other.
func (r *Reconciler) excluded(ctx context.Context, snapshot *state.Snapshot, q question, only func(*state.Snapshot, string) string) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(r.Rooms())) {
		if name == q.pod.Spec.NodeName || slices.Contains(q.tried, name) {
			continue
		}
		if why, err := r.takes(ctx, snapshot, q, name, only); why != "" || err != nil {
			return why, err
		}
		return fmt.Sprintf("node %s has not the room that the pod requests, beside what is there and what is on its way there", name), nil
	}
	return "", nil
}

// candidates are the nodes that may take the pod, those with the most headroom first. For a governed pod that is bandwidth of cores.
func (r *Reconciler) candidates(ctx context.Context, snapshot *state.Snapshot, q question) []candidate {
	rooms, coming := r.Rooms(), r.coming(ctx, q)
	requests := resource.PodRequests(q.pod, resource.PodResourcesOptions{})
	after := func(name string) candidate {
		more := maps.Clone(requests)
		if more == nil {
			more = corev1.ResourceList{}
		}
		for _, list := range coming[name] {
			add(more, list)
		}
		c := candidate{name: name, headroom: Headroom(rooms[name], more)}
		used := 1 - c.headroom
		if measured, known := r.Load(name); known {
			used = measured + share(rooms[name], more)
		}
		c.pressed = r.Threshold > 0 && used > r.Threshold
		return c
	}
	if len(q.view.Governed) > 0 {
		var out []candidate
		snapshot.Destination(q.pod.UID, func(n *state.NodeView) bool { // asked of the roomiest first, and of all that would do
			out = append(out, after(n.Name))
			return len(out) >= tries
		})
		slices.SortStableFunc(out, func(a, b candidate) int {
			switch {
			case a.pressed == b.pressed:
				return 0
			case a.pressed:
				return 1
			}
			return -1
		})
		return out
	}
	var out []candidate
	for name := range rooms {
		if name != q.pod.Spec.NodeName {
			if c := after(name); c.headroom >= 0 {
				out = append(out, c)
			}
		}
	}
	rank(out)
	return out[:min(len(out), tries)]
}

// share of a node's CPU or memory, whichever is more, that requests take.
func share(room placement.Room, requests corev1.ResourceList) float64 {
	all := placement.Room{Allocatable: room.Allocatable, Available: room.Allocatable}
	return 1 - Headroom(all, requests)
}

func add(into, list corev1.ResourceList) {
	for name, more := range list {
		sum := into[name]
		sum.Add(more)
		into[name] = sum
	}
}

// takes is why a node does not take the pod; empty: it does.
func (r *Reconciler) takes(ctx context.Context, snapshot *state.Snapshot, q question, node string, only func(*state.Snapshot, string) string) (string, error) {
	if node == q.pod.Spec.NodeName {
		return fmt.Sprintf("the pod is on node %s", node), nil
	}
	if only != nil {
		if why := only(snapshot, node); why != "" {
			return why, nil
		}
	}
	if why, err := r.unfit(ctx, snapshot, node, q.view); why != "" || err != nil {
		return why, err
	}
	if len(q.view.Governed) > 0 {
		if _, ok := snapshot.Destination(q.pod.UID, func(n *state.NodeView) bool { return n.Name == node }); !ok {
			return noCores(snapshot, q.pod.UID, node), nil
		}
	}
	why, err := r.Placement.Refusal(ctx, node, []*corev1.Pod{q.pod})
	if why != "" {
		why = fmt.Sprintf("node %s has no place for the pod: %s", node, why)
	}
	return why, err
}

// coming is what the pods request that are on their way to a node and not there yet. A migration that has given its target up, and waits
// for another, counts for no node.
func (r *Reconciler) coming(ctx context.Context, q question) map[string][]corev1.ResourceList {
	out := map[string][]corev1.ResourceList{}
	for i := range q.others {
		o := &q.others[i]
		if o.UID == q.object.UID || o.Status.Phase.Over() || adrift(o) || o.Status.Target == nil || o.Status.Target.Node == "" || o.Status.Target.PodUID != "" {
			continue
		}
		if requests, ok := r.requested(ctx, o); ok {
			out[o.Status.Target.Node] = append(out[o.Status.Target.Node], requests)
		}
	}
	return out
}

// requested is what the pod of a migration requests, as long as it is there.
func (r *Reconciler) requested(ctx context.Context, o *v1alpha1.PodMigration) (corev1.ResourceList, bool) {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.PodName}, pod); err != nil {
		return nil, false
	}
	return resource.PodRequests(pod, resource.PodResourcesOptions{}), true
}
