package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// waits is for how long pods lack something.
type waits struct {
	since   map[types.UID]time.Time
	longest time.Duration
}

// see takes down whether a pod lacks it now.
func (w *waits) see(pod types.UID, lacks bool, now time.Time) {
	if !lacks {
		delete(w.since, pod)
		return
	}
	if w.since == nil {
		w.since = map[types.UID]time.Time{}
	}
	if _, ok := w.since[pod]; !ok {
		w.since[pod] = now
	}
	w.longest = max(w.longest, now.Sub(w.since[pod]))
}

// onCores are the pods of which a container has a budget in force.
func onCores(nodes []v1alpha1.RTNode) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range nodes {
		for _, server := range nodes[i].Status.Servers {
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

// slowest is the longest that a node took from being ordered until pods could come.
func slowest(claims []karpenterv1.NodeClaim) time.Duration {
	longest := time.Duration(0)
	for i := range claims {
		claim := &claims[i]
		if c := claim.StatusConditions().Get(karpenterv1.ConditionTypeInitialized); c.IsTrue() {
			longest = max(longest, c.LastTransitionTime.Sub(claim.CreationTimestamp.Time))
		}
	}
	return longest
}
