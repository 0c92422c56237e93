package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// ReasonWorkloadOptimized is the reason of the KCloud Workload Optimizer's Event.
const ReasonWorkloadOptimized = "WorkloadOptimized"

// WorkloadOptimized tells that all pods of a workload are ready, and that they cost and draw what they may.
func WorkloadOptimized(workload runtime.Object, dollars, watts float64, node string) Event {
	return normal(workload, ReasonWorkloadOptimized, fmt.Sprintf("All pods are ready and keep all constraints: %.4f USD per hour, %.1f W, most of them on node %s", dollars, watts, node), key(workload))
}
