package test

import (
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// image is never pulled: simulated kubelets run nothing.
const image = "pause:3.10"

// PodTemplate is what a workload's pods are made from.
type PodTemplate = corev1.PodTemplateSpec

// Pod returns a pod that asks for cpu, a tenth of a GiB of memory, and stops at once.
func Pod(name, cpu string, changes ...func(*PodTemplate)) *corev1.Pod {
	t, namespace := template(name, cpu, changes)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: t.Labels, Annotations: t.Annotations},
		Spec:       t.Spec,
	}
}

// Deployment returns a Deployment of such pods.
func Deployment(name string, replicas int32, cpu string, changes ...func(*PodTemplate)) *appsv1.Deployment {
	t, namespace := template(name, cpu, changes)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: Selector(name), Template: t},
	}
}

// StatefulSet returns a StatefulSet of such pods.
func StatefulSet(name string, replicas int32, cpu string, changes ...func(*PodTemplate)) *appsv1.StatefulSet {
	t, namespace := template(name, cpu, changes)
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: name, Selector: Selector(name), Template: t},
	}
}

// DaemonSet returns a DaemonSet of such pods, which runs on every node.
func DaemonSet(name, cpu string, changes ...func(*PodTemplate)) *appsv1.DaemonSet {
	t, namespace := template(name, cpu, changes)
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       appsv1.DaemonSetSpec{Selector: Selector(name), Template: t},
	}
}

// PodDisruptionBudget lets at most unavailable pods of the workload be evicted at once.
func PodDisruptionBudget(workload string, unavailable int) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: workload, Namespace: Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:       Selector(workload),
			MaxUnavailable: lo.ToPtr(intstr.FromInt(unavailable)),
		},
	}
}

// Selector selects the pods of a workload.
func Selector(workload string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{Label: workload}}
}

// template returns what pods are made from, and the namespace that they are made in.
func template(name, cpu string, changes []func(*PodTemplate)) (t PodTemplate, namespace string) {
	t = PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{Label: name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: lo.ToPtr(int64(0)),
			Containers: []corev1.Container{{
				Name:  "app",
				Image: image,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse(cpu),
					corev1.ResourceMemory: resource.MustParse("100Mi"),
				}},
			}},
		},
	}
	build(&t, changes)
	namespace, t.Namespace = lo.CoalesceOrEmpty(t.Namespace, Namespace), ""
	return t, namespace
}

// Requests adds a request, replacing one for the same resource.
func Requests(name corev1.ResourceName, quantity string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		r := &t.Spec.Containers[0].Resources
		r.Requests[name] = resource.MustParse(quantity)
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			r.Limits = lo.Assign(r.Limits, corev1.ResourceList{name: resource.MustParse(quantity)})
		}
	}
}

// OnNodes lets pods run only on nodes with the label.
func OnNodes(label, value string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.NodeSelector = lo.Assign(t.Spec.NodeSelector, map[string]string{label: value})
	}
}

// Tolerates lets pods run on nodes with the taint.
func Tolerates(key string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.Tolerations = append(t.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
}

// SpreadOver spreads the workload's pods evenly over the values of a node label.
func SpreadOver(label string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew:           1,
			TopologyKey:       label,
			WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector:     Selector(t.Labels[Label]),
		})
	}
}

// ApartFromEachOther puts each pod of the workload on a node of its own.
func ApartFromEachOther() func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: Selector(t.Labels[Label]),
			}},
		}}
	}
}

// DoNotDisrupt forbids voluntary disruption of the pods' nodes.
func DoNotDisrupt() func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Annotations = lo.Assign(t.Annotations, map[string]string{karpenterv1.DoNotDisruptAnnotationKey: "true"})
	}
}

// StopsIn is the grace the pods ask for when they are told to stop, in whole seconds.
func StopsIn(grace time.Duration) func(*PodTemplate) {
	return func(t *PodTemplate) { t.Spec.TerminationGracePeriodSeconds = lo.ToPtr(int64(grace.Seconds())) }
}

// ApartFrom keeps the pods off nodes that run pods of the other workloads.
func ApartFrom(workloads ...string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: Label, Operator: metav1.LabelSelectorOpIn, Values: workloads,
				}}},
			}},
		}}
	}
}
