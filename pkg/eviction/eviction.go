// Package eviction asks the API server to evict pods (the Eviction API), and says what its answers mean.
package eviction

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Verdict is what the API server has decided.
type Verdict int

const (
	// Evicted means that the pod goes; of a dry run: it would.
	Evicted Verdict = iota
	// Gone means that the pod is not there any longer; another one may have its name.
	Gone
	// Later means that a PodDisruptionBudget forbids it now, or there are several, between which the API server does not choose.
	Later
	// Never means that a policy forbids it, which does not change its mind soon.
	Never
)

// Answer is a verdict, and in the API server's words why the pod may not go.
type Answer struct {
	Verdict Verdict
	Why     string
}

// Refused tells whether the pod stays.
func (a Answer) Refused() bool { return a.Verdict == Later || a.Verdict == Never }

// Ask asks for the eviction of this very pod, not of one that has taken its name. Errors are those of the way there: asking again
// may help.
func Ask(ctx context.Context, c client.Client, pod *corev1.Pod, options ...client.SubResourceCreateOption) (Answer, error) {
	return ask(ctx, c, pod, nil, nil, options...)
}

// AskAs is Ask with annotations on the Eviction, by which admission webhooks tell for what it is.
func AskAs(ctx context.Context, c client.Client, pod *corev1.Pod, annotations map[string]string, options ...client.SubResourceCreateOption) (Answer, error) {
	return ask(ctx, c, pod, annotations, nil, options...)
}

// AskWithin is AskAs for a pod that is to end within so many seconds, whatever its own grace period is. A kubelet that has begun to end a pod does not
// shorten that any longer.
func AskWithin(ctx context.Context, c client.Client, pod *corev1.Pod, seconds int64, annotations map[string]string) (Answer, error) {
	return ask(ctx, c, pod, annotations, &seconds)
}

func ask(ctx context.Context, c client.Client, pod *corev1.Pod, annotations map[string]string, grace *int64, options ...client.SubResourceCreateOption) (Answer, error) {
	body := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Annotations: annotations},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}, GracePeriodSeconds: grace},
	}
	err := c.SubResource("eviction").Create(ctx, pod.DeepCopy(), body, options...)
	switch {
	case err == nil:
		return Answer{Verdict: Evicted}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return Answer{Verdict: Gone}, nil
	case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err):
		return Answer{Later, words(err)}, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Answer{Never, words(err)}, nil
	}
	return Answer{}, fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// words of the API server.
func words(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}
