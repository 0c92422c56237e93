package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/karpenter/pkg/test"
)

// diversePods draws the mix that upstream's scheduling benchmark made customary: a fifth each of
// plain pods, pods spread over zones, pods spread over nodes, pods that want a zone together, and
// pods that refuse to share a node.
func diversePods(r *rand.Rand, count int) []*corev1.Pod {
	kinds := []func(*rand.Rand) test.PodOptions{plain, spreadOver(corev1.LabelTopologyZone), spreadOver(corev1.LabelHostname), together, apart}
	pods := make([]*corev1.Pod, 0, count)
	for i := range count {
		o := kinds[i*len(kinds)/count](r)
		o.UID = uuid.NewUUID()
		o.ResourceRequirements = corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity([]int64{100, 250, 500, 1000, 1500}[r.IntN(5)], resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity([]int64{100, 256, 512, 1024, 2048, 4096}[r.IntN(6)]<<20, resource.BinarySI),
		}}
		pods = append(pods, test.Pod(o))
	}
	return pods
}

func labelled(r *rand.Rand) map[string]string {
	return map[string]string{"app": fmt.Sprintf("app-%d", r.IntN(7))}
}

func plain(r *rand.Rand) test.PodOptions {
	return test.PodOptions{ObjectMeta: metav1.ObjectMeta{Labels: labelled(r)}}
}

func spreadOver(key string) func(*rand.Rand) test.PodOptions {
	return func(r *rand.Rand) test.PodOptions {
		return test.PodOptions{
			ObjectMeta: metav1.ObjectMeta{Labels: labelled(r)},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew:           1,
				TopologyKey:       key,
				WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector:     &metav1.LabelSelector{MatchLabels: labelled(r)},
			}},
		}
	}
}

// together uses affinity of a pod to its own kind: affinity to others could leave pods unplannable.
func together(r *rand.Rand) test.PodOptions {
	labels := map[string]string{"affine": fmt.Sprintf("group-%d", r.IntN(7))}
	return test.PodOptions{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		PodRequirements: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			TopologyKey:   corev1.LabelTopologyZone,
		}},
	}
}

func apart(*rand.Rand) test.PodOptions {
	labels := map[string]string{"apart": "yes"}
	return test.PodOptions{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		PodAntiRequirements: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			TopologyKey:   corev1.LabelHostname,
		}},
	}
}
