package resourcepressure

import (
	"cmp"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// room is a node as a place to go to.
type room struct {
	Node *corev1.Node
	// CPU and Memory in use, with what is on its way there; ratios.
	CPU, Memory float64
	// Coming are pods that were given the node in this look.
	Coming []*corev1.Pod
}

// open tells whether a node takes pods from elsewhere: ready, not cordoned, not about to go, not under pressure, and its
// usage known.
func open(n *corev1.Node, u usage.Usage, pressed bool) bool {
	if pressed || n.Spec.Unschedulable || n.DeletionTimestamp != nil || !u.CPU.Known() || !u.Memory.Known() {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// after is the usage of the node with the pod there.
func (r *room) after(source string, a usage.Amount) (cpu, memory float64) {
	cpu, memory = usage.Shares(source, r.Node, a)
	return r.CPU + cpu, r.Memory + memory
}

// preferred are the rooms that stay at or below the limit with the pod there, and which its node selector, affinity and
// tolerations let it on, those with most left first. The node that an earlier migration has bound it to does not count.
func preferred(c *candidate, rooms []*room, source string, limit float64) []*room {
	left := func(r *room) float64 {
		cpu, memory := r.after(source, c.Amount)
		return 1 - max(cpu, memory)
	}
	var out []*room
	for _, r := range rooms {
		cpu, memory := r.after(source, c.Amount)
		if cpu <= limit && memory <= limit && r.Node.Name != c.Pod.Spec.NodeName && lets(r.Node, v1alpha1.Unpinned(c.Pod)) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *room) int {
		return cmp.Or(cmp.Compare(left(b), left(a)), cmp.Compare(a.Node.Name, b.Node.Name))
	})
	return out
}

// lets tells cheaply whether the scheduler could put the pod on the node; whether it would is for the simulation.
func lets(n *corev1.Node, p *corev1.Pod) bool {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !ok {
		return false
	}
	_, kept := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), n.Spec.Taints, p.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, false)
	return !kept
}

// take gives the node to the pod.
func (r *room) take(source string, c *candidate) {
	r.CPU, r.Memory = r.after(source, c.Amount)
	r.Coming = append(r.Coming, v1alpha1.Unpinned(c.Pod))
}
