package test

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// WorkloadOptimizerChange changes a WorkloadOptimizer before it is created.
type WorkloadOptimizerChange = func(*kcloudv1alpha1.WorkloadOptimizer)

// WorkloadOptimizer governs the pods of a workload, and bounds nothing.
func WorkloadOptimizer(workload string, changes ...WorkloadOptimizerChange) *kcloudv1alpha1.WorkloadOptimizer {
	return build(&kcloudv1alpha1.WorkloadOptimizer{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: workload},
		Spec: kcloudv1alpha1.WorkloadOptimizerSpec{
			WorkloadType: kcloudv1alpha1.WorkloadServing,
			Resources:    kcloudv1alpha1.WorkloadResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
			PodSelector:  Selector(workload),
		},
	}, changes)
}

// CostsAtMost bounds what the workload costs, in USD per hour.
func CostsAtMost(dollars float64) WorkloadOptimizerChange {
	return func(w *kcloudv1alpha1.WorkloadOptimizer) {
		w.Spec.CostConstraints = &kcloudv1alpha1.CostConstraints{MaxCostPerHour: dollars}
	}
}

// DrawsAtMost bounds what the workload draws, in watts.
func DrawsAtMost(watts float64) WorkloadOptimizerChange {
	return func(w *kcloudv1alpha1.WorkloadOptimizer) {
		w.Spec.PowerConstraints = &kcloudv1alpha1.PowerConstraints{MaxPowerUsage: watts}
	}
}
