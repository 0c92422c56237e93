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

const (
	// withoutRecord is why no pod can be made in the place of a source.
	withoutRecord = "somebody has deleted the PodTemplate that says what it was"
	// keepsOwner is a label and an annotation on a PodTemplate. By the label the API server keeps the owner of the described pod from
	// creating one. The annotation names the PodMigration for which it does so. The ValidatingAdmissionPolicy for replacements uses both.
	keepsOwner = v1alpha1.Group + "/keeps-owner"
)

// restrain has the API server keep the owner from creating the replacement from now on, or returns who refuses that. The same
// PodTemplate stores the replacement once there are archives to create it from.
func (m *migrate) restrain(ctx context.Context, task orchestration.Task, replacement *corev1.Pod) (veto string, err error) {
	by, err := m.migrationReference(ctx, task)
	switch {
	case err != nil:
		return "", err
	case by == nil:
		return errForgotten.Error(), nil
	}
	kept := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: replacement.Namespace, Name: ownName(task), OwnerReferences: []metav1.OwnerReference{*by},
			Labels: map[string]string{keepsOwner: "true"}, Annotations: map[string]string{keepsOwner: by.Name},
		},
		Template: templateOf(replacement),
	}
	if err := m.Client.Create(ctx, kept); err != nil && !apierrors.IsAlreadyExists(err) {
		return unstorable(err)
	}
	return "", nil
}

// migrationReference is the PodMigration that owns the stored PodTemplate, so that garbage collection deletes it. It is nil if the
// PodMigration is gone.
func (m *migrate) migrationReference(ctx context.Context, task orchestration.Task) (*metav1.OwnerReference, error) {
	out := &metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "PodMigration", Name: task.Progress[progressMigration]}
	if of, asked := strings.CutPrefix(task.Object.Spec.Cause, causePrefix); asked {
		out.UID = types.UID(of)
		return out, nil
	}
	if out.Name == "" {
		return nil, nil
	}
	o := &v1alpha1.PodMigration{}
	if err := m.API.Get(ctx, types.NamespacedName{Namespace: task.Object.Spec.Pods[0].Namespace, Name: out.Name}, o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	out.UID = o.UID
	return out, nil
}

// storeTemplate stores the replacement's template, or returns who refuses that.
func (m *migrate) storeTemplate(ctx context.Context, task orchestration.Task, replacement *corev1.Pod) (veto string, err error) {
	kept, err := m.stored(ctx, task)
	switch {
	case err != nil:
		return "", err
	case kept == nil:
		return withoutRecord, nil
	}
	after := kept.DeepCopy()
	after.Template = templateOf(replacement)
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(kept, client.MergeFromWithOptimisticLock{})); err != nil {
		return unstorable(err)
	}
	return "", nil
}

func templateOf(replacement *corev1.Pod) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: replacement.ObjectMeta, Spec: replacement.Spec}
}

// unstorable tells who refuses that a PodTemplate is written, from what just goes wrong.
func unstorable(err error) (veto string, _ error) {
	if refused(err) {
		return "what is to be in its place cannot be stored: " + err.Error(), nil
	}
	return "", fmt.Errorf("storing what is to be in the source's place: %w", err)
}

// replacementFrom is the replacement as storeReplacement has stored it.
func replacementFrom(kept *corev1.PodTemplate) *corev1.Pod {
	replacement := &corev1.Pod{ObjectMeta: kept.Template.ObjectMeta, Spec: kept.Template.Spec}
	replacement.Namespace = kept.Namespace
	return replacement
}

// stored is the PodTemplate that restrain creates and storeReplacement completes; it is nil if there is none.
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

// free lets the owner make pods again, as there is one that goes on in the source's place.
func (m *migrate) free(ctx context.Context, task orchestration.Task) error {
	kept := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: task.Object.Spec.Pods[0].Namespace, Name: ownName(task)}}
	off := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, keepsOwner)
	if err := m.Client.Patch(ctx, kept, client.RawPatch(types.MergePatchType, off)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting the owner of pod %s/%s make others: %w", kept.Namespace, kept.Name, err)
	}
	return nil
}

// unrestrain does so for a migration that is over, whatever its action, which may be gone, has left: no pod is to be restored any
// longer.
func (r *Reconciler) unrestrain(ctx context.Context, o *v1alpha1.PodMigration, action string) error {
	by, source := o.Status.Owner, o.Status.Source
	if action == "" || !touched(o) || o.Status.Strategy != v1alpha1.StrategyCheckpoint || source == nil || by != nil && !needsHandover(&metav1.OwnerReference{APIVersion: by.APIVersion, Kind: by.Kind}) {
		return nil
	}
	of := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: action}}
	of.Spec.Pods = []v1alpha1.ActionPod{{Namespace: o.Namespace, Name: source.PodName}}
	return r.unstore(ctx, orchestration.Task{Object: of})
}

// unstore takes it away, and lets the owner make pods again.
func (d Dependencies) unstore(ctx context.Context, task orchestration.Task) error {
	kept := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: task.Object.Spec.Pods[0].Namespace, Name: ownName(task)}}
	if err := d.Client.Delete(ctx, kept); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting PodTemplate %s/%s: %w", kept.Namespace, kept.Name, err)
	}
	return nil
}
