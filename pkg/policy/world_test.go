package policy_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// noon of a Saturday.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// question is one with something in everything that expressions see.
func question() policy.Question {
	return policy.Question{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web-1", UID: "uid-1", CreationTimestamp: metav1.Time{Time: noon.Add(-time.Hour)},
				Labels:      map[string]string{"app": "web", "male.keti.dev/accuracy": "0.6"},
				Annotations: map[string]string{"male.keti.dev/latency": "0.3", "note": "x"},
			},
			Spec: corev1.PodSpec{
				NodeName: "node-1", Priority: ptr.To[int32](7),
				Containers: []corev1.Container{{
					Name: "app", Image: "app:1",
					Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
					LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}},
				}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		},
		Source:  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"zone": "a"}}},
		Target:  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2", Labels: map[string]string{"zone": "b"}}, Spec: corev1.NodeSpec{Unschedulable: true}},
		Trigger: v1alpha1.TriggerCost,
		McKube: &mcv1.McKube{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: mcv1.McKubeSpec{
				Podname: "web-1", Criticality: "high", RTSettings: &mcv1.RTSettings{Period: 10_000, RuntimeLow: 1_000, RuntimeHi: 2_000},
				Escalation: &mcv1.Escalation{RecoveryDelay: &metav1.Duration{Duration: 5 * time.Second}},
			},
		},
		Budget: map[string]int64{policy.BudgetSourceNode: 2, policy.BudgetCluster: 5},
		Now:    noon,
	}
}

// named is a policy without a word.
func named(name string, options ...func(*v1alpha1.MigrationPolicy)) *v1alpha1.MigrationPolicy {
	p := &v1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1}}
	for _, o := range options {
		o(p)
	}
	return p
}

func rule(name, expression string, action v1alpha1.RuleAction) func(*v1alpha1.MigrationPolicy) {
	return func(p *v1alpha1.MigrationPolicy) {
		p.Spec.Rules = append(p.Spec.Rules, v1alpha1.MigrationRule{Name: name, Expression: expression, Action: action})
	}
}

func open(schedule string, duration time.Duration) func(*v1alpha1.MigrationPolicy) {
	return func(p *v1alpha1.MigrationPolicy) {
		p.Spec.Windows = append(p.Spec.Windows, v1alpha1.MigrationWindow{Schedule: schedule, Duration: metav1.Duration{Duration: duration}})
	}
}

func selecting(labels map[string]string) func(*v1alpha1.MigrationPolicy) {
	return func(p *v1alpha1.MigrationPolicy) { p.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels} }
}

func inNamespaces(labels map[string]string) func(*v1alpha1.MigrationPolicy) {
	return func(p *v1alpha1.MigrationPolicy) {
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: labels}
	}
}
