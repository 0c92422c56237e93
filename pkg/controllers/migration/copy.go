package migration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

const (
	// annotationDeletionCost says which pod of a ReplicaSet goes first, and lowestCost that it is this one.
	annotationDeletionCost = corev1.PodDeletionCost
	lowestCost             = math.MinInt32
	// annotationFormerCost is the pod's deletion cost before the controller lowered it. unsaid means that the pod had none.
	annotationFormerCost = v1alpha1.Group + "/former-deletion-cost"
	unsaid               = "unsaid"
	// longestName is what is kept of a pod's name in that of its copy, which has 63 characters at most: it is a host's name.
	longestName = 50
)

// ofCopy is what the name of a copy has beyond that of its source.
var ofCopy = regexp.MustCompile(`(-m[0-9a-f]{8}-[0-9]+)+$`)

// copyName is the name of the pod that replaces the source. Every controller process derives the same name.
func copyName(task orchestration.Task) string {
	if task.Progress[progressTemplate] != "" {
		return task.Object.Spec.Pods[0].Name
	}
	return ownName(task)
}

// ownName is a name that no other migration gives to anything.
func ownName(task orchestration.Task) string {
	base := ofCopy.ReplaceAllString(task.Object.Spec.Pods[0].Name, "")
	base = strings.TrimRight(base[:min(longestName, len(base))], ".-")
	return base + "-m" + task.Object.Name[len(task.Object.Name)-min(10, len(task.Object.Name)):]
}

// twinOf is the pod that was made in the source's place; nil for none. That a cache does not show it yet only has it made again, under
// its name; but before anything is undone, or given up as taken away, the API server is asked.
func (m *migrate) twinOf(ctx context.Context, task orchestration.Task) (*corev1.Pod, error) {
	if task.Undoing() {
		return m.copied(ctx, m.API, task)
	}
	pod, err := m.copied(ctx, m.Client, task)
	if pod == nil && err == nil && (task.Progress[progressTwin] != "" || task.Progress[progressCut] != "") {
		return m.copied(ctx, m.API, task)
	}
	return pod, err
}

// copied is that, as a reader shows it.
func (m *migrate) copied(ctx context.Context, from client.Reader, task orchestration.Task) (*corev1.Pod, error) {
	source := task.Object.Spec.Pods[0]
	pod := &corev1.Pod{}
	err := from.Get(ctx, types.NamespacedName{Namespace: source.Namespace, Name: copyName(task)}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s/%s: %w", source.Namespace, copyName(task), err)
	case pod.Annotations[mcv1.AnnotationReplaces] != string(source.UID):
		return nil, nil // the pod belongs to another controller or user
	}
	return pod, nil
}

// twin returns a pod that does what the source does. It has no owner yet.
func twin(task orchestration.Task, source *corev1.Pod, labels map[string]string, spec corev1.PodSpec) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: source.Namespace, Name: copyName(task), Labels: maps.Clone(labels),
			Annotations: map[string]string{mcv1.AnnotationReplaces: string(source.UID)},
		},
		Spec: *spec.DeepCopy(),
	}
	out.Spec.NodeName, out.Spec.SchedulingGates, out.Spec.EphemeralContainers = "", nil, nil
	dropOwnClaims(&out.Spec)
	return out
}

// ofPod returns the copy of a pod that no owner recreates.
func ofPod(task orchestration.Task, source *corev1.Pod) *corev1.Pod {
	out := twin(task, source, source.Labels, v1alpha1.Unpinned(source).Spec)
	if metav1.GetControllerOf(source) == nil { // of a ReplicaSet that has left it: the label says of a copy that it was handed to one
		delete(out.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	}
	carry(out.Annotations, source.Annotations)
	recall(out, source)
	return out
}

// ofTemplate is the twin of a ReplicaSet's pod, which the ReplicaSet does not adopt.
func ofTemplate(task orchestration.Task, source *corev1.Pod, owner *appsv1.ReplicaSet) *corev1.Pod {
	out := twin(task, source, owner.Spec.Template.Labels, owner.Spec.Template.Spec)
	delete(out.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	carry(out.Annotations, owner.Spec.Template.Annotations)
	return out
}

// carry takes annotations over, but ours: those are of one pod.
func carry(into, from map[string]string) {
	for key, value := range from {
		if !strings.HasPrefix(key, v1alpha1.Group+"/") && key != annotationDeletionCost {
			into[key] = value
		}
	}
}

// dropOwnClaims takes away the claims of a copied pod that the webhook has given it: the copy gets its own.
func dropOwnClaims(spec *corev1.PodSpec) {
	own := map[string]bool{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			own[rtdra.ClaimName(list[i].Name)] = true
			list[i].Resources.Claims = slices.DeleteFunc(list[i].Resources.Claims, func(c corev1.ResourceClaim) bool { return c.Name == rtdra.ClaimName(list[i].Name) })
		}
	}
	spec.ResourceClaims = slices.DeleteFunc(spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return own[c.Name] })
}

// create makes the copy, if it is not there. A policy that forbids it ends the migration, in its words.
func (m *migrate) create(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (veto string, err error) {
	if why, err := m.stolen(ctx, task, &pod.Spec); why != "" || err != nil {
		return why, err
	}
	err = m.Client.Create(ctx, pod)
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return "", nil
	case refused(err):
		return "the pod in its place cannot be made: " + err.Error(), nil
	}
	return "", fmt.Errorf("making pod %s/%s in the place of another: %w", pod.Namespace, pod.Name, err)
}

// discard takes the copy away; gone is false while it is still there.
func (m *migrate) discard(ctx context.Context, task orchestration.Task) (gone bool, err error) {
	pod, err := m.copied(ctx, m.API, task)
	if err != nil || pod == nil {
		return pod == nil, err
	}
	if pod.DeletionTimestamp != nil {
		return false, nil
	}
	options := []client.DeleteOption{client.Preconditions{UID: &pod.UID}}
	if v1alpha1.MigrationStrategy(task.Progress[progressStrategy]) == v1alpha1.StrategyCheckpoint { // the source stands still until it is gone
		options = append(options, client.GracePeriodSeconds(briefly))
	} // never 0: the scheduler may be binding it, and its kubelet begins it then
	if err := m.Client.Delete(ctx, pod, options...); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return false, nil
}

// yield has the source be the first of its owner's pods that goes. What its author has said about that is kept beside it.
func (m *migrate) yield(ctx context.Context, source *corev1.Pod) error {
	was, least := source.Annotations[annotationDeletionCost], strconv.Itoa(lowestCost)
	if was == least {
		return nil
	}
	return m.annotate(ctx, source, map[string]string{annotationDeletionCost: least, annotationFormerCost: cmp.Or(was, unsaid)})
}

// stay takes that back.
func (m *migrate) stay(ctx context.Context, source *corev1.Pod) error {
	was, ours := source.Annotations[annotationFormerCost]
	if !ours {
		return nil
	}
	if was == unsaid {
		was = ""
	}
	return m.annotate(ctx, source, map[string]string{annotationDeletionCost: was, annotationFormerCost: ""})
}

// annotate sets annotations of a pod; those without a value are taken away.
func (m *migrate) annotate(ctx context.Context, pod *corev1.Pod, values map[string]string) error {
	after := pod.DeepCopy()
	for key, value := range values {
		if metav1.SetMetaDataAnnotation(&after.ObjectMeta, key, value); value == "" {
			delete(after.Annotations, key)
		}
	}
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("annotating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
