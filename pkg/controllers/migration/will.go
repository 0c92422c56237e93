package migration

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// withoutRecord is why no pod can be made in the place of a source.
const withoutRecord = "somebody has deleted the PodTemplate that says what it was"

// putDown keeps what the pod in the source's place is to be, or says who refuses that. By dry run it only asks.
func (m *migrate) putDown(ctx context.Context, task orchestration.Task, heir *corev1.Pod, how ...client.CreateOption) (veto string, err error) {
	kept := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: heir.Namespace, Name: ownName(task)},
		Template:   corev1.PodTemplateSpec{ObjectMeta: heir.ObjectMeta, Spec: heir.Spec},
	}
	if of, asked := strings.CutPrefix(task.Object.Spec.Cause, causePrefix); asked { // it goes with that, should nobody come to take it away
		kept.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "PodMigration", Name: task.Progress[progressMigration], UID: types.UID(of),
		}}
	}
	switch err := m.Client.Create(ctx, kept, how...); {
	case refused(err):
		return "what is to be in its place cannot be stored: " + err.Error(), nil
	case err != nil && !apierrors.IsAlreadyExists(err):
		return "", fmt.Errorf("storing PodTemplate %s/%s: %w", kept.Namespace, kept.Name, err)
	}
	return "", nil
}

// heirBy is that pod as bequeath has stored it.
func heirBy(kept *corev1.PodTemplate) *corev1.Pod {
	heir := &corev1.Pod{ObjectMeta: kept.Template.ObjectMeta, Spec: kept.Template.Spec}
	heir.Namespace = kept.Namespace
	return heir
}

// stored is what bequeath has stored; nil for nothing.
func (m *migrate) stored(ctx context.Context, task orchestration.Task) (*corev1.PodTemplate, error) {
	kept := &corev1.PodTemplate{}
	key := types.NamespacedName{Namespace: task.Object.Spec.Pods[0].Namespace, Name: ownName(task)}
	if err := m.API.Get(ctx, key, kept); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading PodTemplate %s: %w", key, err)
	}
	return kept, nil
}

// unstore takes it away.
func (m *migrate) unstore(ctx context.Context, task orchestration.Task) error {
	kept := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: task.Object.Spec.Pods[0].Namespace, Name: ownName(task)}}
	if err := m.Client.Delete(ctx, kept); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting PodTemplate %s/%s: %w", kept.Namespace, kept.Name, err)
	}
	return nil
}
