package main

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// wait is one time that a pod lacked something, and the node that it was on at its end; empty for none.
type wait struct {
	from, to time.Time
	node     string
}

// waits are the times that pods lack something.
type waits struct {
	// begun is when it is looked from: nobody has waited for longer.
	begun time.Time
	seen  map[types.UID]bool
	open  map[types.UID]wait
	over  []wait
}

// see takes down whether a pod lacks it now. One that was never seen before has lacked it since it was made.
func (w *waits) see(pod *corev1.Pod, lacks bool, now time.Time) {
	if w.seen == nil {
		w.seen, w.open = map[types.UID]bool{}, map[types.UID]wait{}
	}
	is, known := w.open[pod.UID]
	switch {
	case known:
	case !lacks:
		w.seen[pod.UID] = true
		return
	case w.seen[pod.UID] || pod.CreationTimestamp.Time.Before(w.begun):
		is.from = now
		if !w.seen[pod.UID] {
			is.from = w.begun
		}
	default:
		is.from = pod.CreationTimestamp.Time
	}
	w.seen[pod.UID] = true
	is.to, is.node = now, pod.Spec.NodeName
	if lacks {
		w.open[pod.UID] = is
		return
	}
	delete(w.open, pod.UID)
	w.over = append(w.over, is)
}

// all are those that are over, and those that are not as far as was seen.
func (w *waits) all() []wait {
	return slices.AppendSeq(slices.Clone(w.over), maps.Values(w.open))
}

// longest of them.
func (w *waits) longest() time.Duration {
	out := time.Duration(0)
	for _, one := range w.all() {
		out = max(out, one.to.Sub(one.from))
	}
	return out
}

// beyond is by how much a pod waited longer than it takes to open a node: the one that it came to, where that was ordered while it waited. Who
// came to one that was there, or to none, could have had one as fast as the fastest.
func (w *waits) beyond(opened []opening) time.Duration {
	fastest := time.Duration(0)
	for i, o := range opened {
		if i == 0 || o.took < fastest {
			fastest = o.took
		}
	}
	out := time.Duration(0)
	for _, one := range w.all() {
		needed := fastest
		for _, o := range opened {
			if o.node == one.node && !o.ordered.Before(one.from.Truncate(time.Second)) { // the API server's times are in seconds
				needed = o.took
			}
		}
		out = max(out, one.to.Sub(one.from)-needed)
	}
	return out
}

// opening is how long a node took from being ordered until pods could come.
type opening struct {
	node    string
	ordered time.Time
	took    time.Duration
}

// openings are those of all nodes on record, of those that have gone since, too.
func openings(versions []history.Version) []opening {
	found := map[types.UID]opening{}
	for _, v := range versions {
		claim, ok := v.Object.(*karpenterv1.NodeClaim)
		if !ok {
			continue
		}
		if c := claim.StatusConditions().Get(karpenterv1.ConditionTypeInitialized); c.IsTrue() {
			ordered := claim.CreationTimestamp.Time
			found[claim.UID] = opening{claim.Status.NodeName, ordered, c.LastTransitionTime.Sub(ordered)}
		}
	}
	return slices.Collect(maps.Values(found))
}

// onCores are the pods of which a container has a budget in force.
func onCores(nodes []*v1alpha1.RTNode) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, node := range nodes {
		for _, server := range node.Status.Servers {
			if server.BudgetUs > 0 && server.Error == "" {
				out[server.PodUID] = true
			}
		}
	}
	return out
}

// critical are the names of the workloads of criticality High.
func critical(workloads []workload) []string {
	names := map[string]bool{}
	var out []string
	for _, l := range workloads {
		if l.criticality == mcoperatorv1.CriticalityHigh && !names[l.name] {
			names[l.name] = true
			out = append(out, l.name)
		}
	}
	return out
}

// ending tells whether a pod wants no core any longer.
func ending(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
