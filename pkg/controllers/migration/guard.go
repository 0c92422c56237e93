package migration

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// guardian is what the ValidatingAdmissionPolicy says that keeps owners from making pods meanwhile, whose name is the release's, and asksFor begins annotation replaces of a pod by which it is
// asked whether it does for the pod whose UID follows.
const (
	guardian = " with its state, and makes the one in its place"
	asksFor  = "asks/"
)

// guard has the API server, before anything is stopped, keep the owner from making a pod in the source's place, and asks whether it does: else that one would
// begin anew while the state is on its way. It also tells whether somebody else would forbid that pod, of the images of which the controller makes it, or
// that what it is to be is stored.
func (m *migrate) guard(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, bool, error) {
	heir := likeArchives(heirOf(task, source), source.UID)
	if why, err := m.restrain(ctx, task, heir); why != "" || err != nil {
		return rules.Result{Undo: why != "", Message: why}, false, err
	}
	why, veto, err := m.unkept(ctx, task, source)
	switch {
	case err != nil:
		return rules.Result{}, false, err
	case veto:
		return rules.Result{Undo: true, Message: why}, false, nil
	case why != "":
		return rules.Result{Undo: m.since(task, progressGuard) > unguarded, Message: why}, false, nil
	}
	why, err = m.inadmissible(ctx, task, heir)
	return rules.Result{Undo: why != "", Message: why}, why == "" && err == nil, err
}

// unkept is why an owner may make a pod in the source's place; empty: the API server keeps it from that. veto: somebody else refuses that pod, else nobody does so yet.
func (m *migrate) unkept(ctx context.Context, task orchestration.Task, source *corev1.Pod) (why string, veto bool, err error) {
	probe := heirOf(task, source)
	probe.Annotations[annotationReplaces] = asksFor + string(source.UID) // for that migration alone: those of other pods of a Job let it pass
	err = m.Client.Create(ctx, probe, client.DryRunAll)
	by := metav1.GetControllerOf(source)
	switch {
	case refused(err) && strings.Contains(err.Error(), "PodMigration "+task.Progress[progressMigration]+" "):
		return "", false, nil
	case refused(err):
		return "the pod in its place could not be made: " + err.Error(), true, nil
	case err != nil && !apierrors.IsAlreadyExists(err):
		return "", false, fmt.Errorf("asking whether %s %s is kept from making pod %s: %w", by.Kind, by.Name, source.Name, err)
	}
	return fmt.Sprintf("nothing keeps %s %s from making the pod anew while its state is on the way: is the chart's ValidatingAdmissionPolicy for heirs installed, and was the API server started since it was taken away last?", by.Kind, by.Name), false, nil
}

// guarded tells whether it is our own policy that refuses a pod: for another migration, or as it does not know yet that it need not. That passes.
func guarded(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && strings.Contains(err.Error(), guardian)
}
