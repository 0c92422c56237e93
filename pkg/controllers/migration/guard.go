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

// guardian is a part of the message of the ValidatingAdmissionPolicy that keeps owners from creating pods meanwhile; the release names
// the policy. asksFor is the prefix of annotation replaces on a probe pod. The UID of the pod for which the policy is probed follows it.
const (
	guardian = " with its state, and makes the one in its place"
	asksFor  = "asks/"
)

// guard has the API server keep the owner from creating the source's replacement, before anything is stopped, and probes that it does.
// Else the owner's pod would start anew while the state is on its way. guard also finds out whether another policy or webhook would forbid
// the replacement with the images that the controller gives it, or the PodTemplate that stores it.
func (m *migrate) guard(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, bool, error) {
	replacement := likeArchives(replacementOf(task, source), source.UID)
	if why, err := m.restrain(ctx, task, replacement); why != "" || err != nil {
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
	why, err = m.inadmissible(ctx, task, replacement)
	return rules.Result{Undo: why != "", Message: why}, why == "" && err == nil, err
}

// unkept returns why an owner may create the source's replacement. It is empty if the API server keeps the owner from that. veto says
// that another policy or webhook refuses the pod; without veto the API server does not refuse the pod yet.
func (m *migrate) unkept(ctx context.Context, task orchestration.Task, source *corev1.Pod) (why string, veto bool, err error) {
	probe := replacementOf(task, source)
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

// guarded tells whether Mainspring's own policy refuses a pod: for another migration, or as the policy does not see yet that it need
// not. Both pass.
func guarded(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && strings.Contains(err.Error(), guardian)
}
