package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// find looks for the cheapest room that may be made now, without the pods that PodDisruptionBudgets keep. Failing that,
// it looks for the cheapest room of all, which then has to wait for a budget. Without victims, there is no room or the
// pod needs none.
func (p *preemptions) find(ctx context.Context, c preemptor, now time.Time) (room, error) {
	s, machines := p.sceneFor(ctx, c, now)
	if !s.possible() {
		return room{}, nil
	}
	s.patient = now.Before(c.view.UnschedulableSince.Add(p.Options.PreemptionDelay + preemptionLife))
	var err error
	if s.kept, err = p.kept(ctx, s.snapshot); err != nil {
		return room{}, err
	}
	r, ok := s.cheapest()
	if !ok && s.kept != nil && machines.err == nil {
		s.kept = nil
		r, _ = s.cheapest()
	}
	return r, machines.err
}

// possible asks the index, which is quick, before every core is looked at.
func (s scene) possible() bool {
	accept := func(n *state.NodeView) bool { ok, _ := s.snapshot.Accepts(n, s.pod); return ok }
	return !slices.ContainsFunc(wanted(s.pod, s.snapshot.Granularity()), func(w want) bool {
		if _, gates := s.snapshot.BestCore(w.Server, accept); len(gates) == 0 {
			return false
		}
		_, ok := s.snapshot.Victims(w.Server, accept)
		return !ok
	})
}

// sceneFor is what room for the pod may be made of, beside the plans of others. What machines could not be
// read is known afterwards.
func (p *preemptions) sceneFor(ctx context.Context, c preemptor, now time.Time) (scene, *machines) {
	snapshot := p.Store.Snapshot()
	m := &machines{known: map[string]machine{}, why: map[string]string{}, refusal: p.Placement.Asking(c.pod)}
	s := scene{snapshot: snapshot, pod: c.view, leaving: c.memory.evicted}
	s.spared, m.err = p.standing(ctx)
	s.otherwise = func(node string, gone uids) bool {
		return enough(m.read(ctx, p.Client, node), c.pod, gone) && m.takes(ctx, node, gone)
	}
	return s.beside(live(p.plans(snapshot), c.view.UID, now)), m
}

// standing are the pods that stand still for a NodeCheckpoint, also when its migration is over: what they have in memory may be nowhere else.
func (p *preemptions) standing(ctx context.Context) (uids, error) {
	states := &v1alpha1.NodeCheckpointList{}
	if err := p.Client.List(ctx, states); err != nil {
		return nil, fmt.Errorf("listing NodeCheckpoints: %w", err)
	}
	out := uids{}
	for i := range states.Items {
		if nc := &states.Items[i]; nc.Holds(nc.Spec.PodUID) {
			out[nc.Spec.PodUID] = true
		}
	}
	return out, nil
}

// machines are nodes as read, each once.
type machines struct {
	known map[string]machine
	// refusal is why the pod would not be placed on a node once some have gone.
	refusal func(ctx context.Context, node string, gone map[types.UID]bool) (string, error)
	// why is what it said last of each node.
	why map[string]string
	err error
}

// takes asks the simulation of the scheduler whether the pod would be placed on a node that was read, once some pods have
// gone. It keeps the first error.
func (m *machines) takes(ctx context.Context, node string, gone uids) bool {
	gone = gone.with()
	for i := range m.known[node].pods {
		if o := &m.known[node].pods[i]; o.DeletionTimestamp != nil {
			gone[o.UID] = true
		}
	}
	why, err := m.refusal(ctx, node, gone)
	if err != nil && m.err == nil {
		m.err = err
	}
	m.why[node] = why
	return err == nil && why == ""
}

// machine is a node with the pods that are bound to it.
type machine struct {
	allocatable corev1.ResourceList
	pods        []corev1.Pod
}

// read keeps the first error. A node that is gone, or cannot be read, has nothing.
func (m *machines) read(ctx context.Context, from client.Client, name string) machine {
	if known, ok := m.known[name]; ok {
		return known
	}
	node, pods := &corev1.Node{}, &corev1.PodList{}
	err := from.Get(ctx, types.NamespacedName{Name: name}, node)
	if err == nil {
		err = from.List(ctx, pods, client.MatchingFields{"spec.nodeName": name})
	}
	if client.IgnoreNotFound(err) != nil && m.err == nil {
		m.err = fmt.Errorf("reading what node %s has left: %w", name, err)
	}
	m.known[name] = machine{allocatable: node.Status.Allocatable, pods: pods.Items}
	return m.known[name]
}

// enough tells whether a machine has the resources that a pod requests once some pods have gone, which is quick. Cores for
// real-time work are counted elsewhere.
func enough(m machine, pod *corev1.Pod, gone uids) bool {
	var stay []*corev1.Pod
	for i := range m.pods {
		o := &m.pods[i]
		if !gone[o.UID] && o.DeletionTimestamp == nil && o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
			stay = append(stay, o)
		}
	}
	return resources.Fits(resources.RequestsForPods(append(stay, pod)...), m.allocatable)
}

// read finds the pods that still exist under their UID.
func (p *preemptions) read(ctx context.Context, list []types.UID) ([]*corev1.Pod, error) {
	snapshot := p.Store.Snapshot()
	var out []*corev1.Pod
	for _, uid := range list {
		view, ok := snapshot.Pod(uid)
		if !ok {
			continue
		}
		pod := &corev1.Pod{}
		if err := p.Client.Get(ctx, view.Key(), pod); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pod %s: %w", view.Key(), err)
		}
		if pod.UID == uid {
			out = append(out, pod)
		}
	}
	return out, nil
}

// veto is a pod that may not be evicted, and why.
type veto struct {
	pod *corev1.Pod
	why string
}
