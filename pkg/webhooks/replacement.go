package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	// replacementsName is the webhook of what owners make in the place of pods that are migrated and that no other entry names.
	replacementsName = "replacements.governed.mckube.io"
	// maxOwners bounds how many owners that entry names. The queue runs far fewer migrations at once.
	maxOwners = 100
	// replacementsTimeout is how many seconds a pod that is not real-time may wait for an answer.
	replacementsTimeout = 2
)

// replacing reports whether a pod that is created may be in the place of one that is migrated. That cannot be said for sure when
// several are made at once, or the eviction is refused: the controller lets the others go on. When nothing is known no pod waits.
// A dry run that names the pod in whose place it is asks whether the API server sends us such pods at all.
func (h Handlers) replacing(ctx context.Context, pod *corev1.Pod, dryRun bool) bool {
	if h.Migrations == nil || metav1.GetControllerOf(pod) == nil {
		return false
	}
	list := &v1alpha1.PodMigrationList{}
	if err := h.Migrations.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(o v1alpha1.PodMigration) bool {
		return v1alpha1.AwaitsReplacement(&o, pod) || dryRun && awaitsOwner(&o) && o.Status.Source != nil && string(o.Status.Source.PodUID) == pod.Annotations[mcv1.AnnotationReplaces]
	})
}

// awaitsOwner reports whether the owner of the migrated pod is about to make one in its place, or makes it. Migrations that wait for their turn need no entry
// yet: the queue bounds those that have begun.
func awaitsOwner(o *v1alpha1.PodMigration) bool {
	if o.Status.Strategy != v1alpha1.StrategyRestart || o.Status.Owner == nil {
		return false
	}
	switch o.Status.Phase {
	case v1alpha1.MigrationReserving, v1alpha1.MigrationCuttingOver, v1alpha1.MigrationRestoring:
		return true
	}
	return false
}

// uidPattern is what the API server gives an object. An owner reference may hold any text, as its author writes it.
var uidPattern = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// replacementsEntry returns a webhook for pods without label sdv.com whose owner has a pod that is migrated by strategy Restart. It is shaped like
// template, but a pod that is not real-time is made all the same when no webhook answers. False: no owner is waited for.
func replacementsEntry(template admissionv1.MutatingWebhook, migrations []v1alpha1.PodMigration) (admissionv1.MutatingWebhook, bool) {
	awaited := slices.DeleteFunc(slices.Clone(migrations), func(o v1alpha1.PodMigration) bool {
		return !awaitsOwner(&o) || !serves(template, o.Namespace) || !uidPattern.MatchString(string(o.Status.Owner.UID))
	})
	slices.SortFunc(awaited, func(a, b v1alpha1.PodMigration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	var owners, namespaces []string
	for _, o := range awaited {
		if len(owners) == maxOwners {
			break
		}
		owners, _ = insert(owners, strconv.Quote(string(o.Status.Owner.UID)))
		namespaces, _ = insert(namespaces, o.Namespace)
	}
	if len(owners) == 0 {
		return admissionv1.MutatingWebhook{}, false
	}
	e := *template.DeepCopy()
	e.Name = replacementsName
	e.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: mcv1.LabelRT, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	e.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
	}}}
	e.MatchConditions = []admissionv1.MatchCondition{{
		Name:       "owner",
		Expression: fmt.Sprintf("has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.uid in [%s])", strings.Join(owners, ", ")),
	}}
	e.FailurePolicy, e.TimeoutSeconds = ptr.To(admissionv1.Ignore), ptr.To[int32](replacementsTimeout)
	return e, true
}
