package test

import (
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// MigrationChange changes a PodMigration that is being built.
type MigrationChange = func(*mckubev1alpha1.PodMigration)

// PodMigration moves a pod, wherever there is most room for it.
func PodMigration(name string, pod *corev1.Pod, changes ...MigrationChange) *mckubev1alpha1.PodMigration {
	m := &mckubev1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: lo.CoalesceOrEmpty(pod.Namespace, Namespace)},
		Spec:       mckubev1alpha1.PodMigrationSpec{PodName: pod.Name, PodUID: pod.UID, Trigger: mckubev1alpha1.TriggerManual},
	}
	build(m, changes)
	return m
}

// To sets the node that it goes to.
func To(node string) MigrationChange {
	return func(m *mckubev1alpha1.PodMigration) { m.Spec.TargetNode = node }
}

// By sets the strategy.
func By(strategy mckubev1alpha1.MigrationStrategy) MigrationChange {
	return func(m *mckubev1alpha1.PodMigration) { m.Spec.Strategy = strategy }
}

// Because sets the trigger.
func Because(trigger mckubev1alpha1.MigrationTrigger) MigrationChange {
	return func(m *mckubev1alpha1.PodMigration) { m.Spec.Trigger = trigger }
}
