package webhooks

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// replacing tells whether a pod that is created may be in the place of one that is migrated. That cannot be said for sure when
// several are made at once, or the eviction is refused: the controller lets the others go on. When nothing is known no pod waits.
func (h Handlers) replacing(ctx context.Context, pod *corev1.Pod) bool {
	if h.Migrations == nil || metav1.GetControllerOf(pod) == nil {
		return false
	}
	list := &v1alpha1.PodMigrationList{}
	if err := h.Migrations.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(o v1alpha1.PodMigration) bool { return v1alpha1.AwaitsReplacement(&o, pod) })
}
