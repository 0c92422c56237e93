package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// refused tells whether the API server refuses a pod: its plugins and policies do so with one of these errors, and webhooks with any of
// them.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// passing tells whether a refusal passes by itself: other migrations end, and a ResourceQuota counts the source, and other pods, until
// they are gone.
func passing(err error) bool { return guarded(err) || overQuota(err) }

// overQuota tells whether a ResourceQuota has no room for a pod, by the words of its plugin.
func overQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ")
}

// inadmissible returns why the API server would not create a pod of archives as it is to be; it is empty if it would. Policies, webhooks
// and plugin AlwaysPullImages may refuse its images, or change the pod into one that cannot be restored. The dry run uses another name,
// as the pod's own is taken. A ResourceQuota without room for both pods, which the API server asks last, says nothing.
func (m *migrate) inadmissible(ctx context.Context, task orchestration.Task, replacement *corev1.Pod) (string, error) {
	probe := replacement.DeepCopy()
	probe.Name = ownName(task)
	switch err := m.Client.Create(ctx, probe, client.DryRunAll); {
	case err == nil:
		return changed(replacement, probe), nil
	case passing(err) || apierrors.IsAlreadyExists(err):
		return "", nil
	case refused(err):
		return "the pod in its place could not be made: " + err.Error(), nil
	default:
		return "", fmt.Errorf("asking whether pod %s/%s may be made in the place of another: %w", replacement.Namespace, replacement.Name, err)
	}
}

// creationRefused handles a replacement that the API server does not create. The controller retries for a while. If Mainspring's own
// policy or a ResourceQuota refuses it, which would refuse the owner's pod as well, the controller retries as long as there is time.
func (m *migrate) creationRefused(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod, why error) (rules.Result, error) {
	switch {
	case passing(why) && m.ends(task):
		return m.leave(handover{nc: nc}, "the pod in its place may not be made yet, and the time is over: "+why.Error()), nil
	case passing(why) || refused(why) && m.since(task, progressForbidden) < unwelcome:
		return rules.Result{Message: "the pod in its place may not be made yet: " + why.Error()}, nil
	case refused(why):
		return m.lose(ctx, task, nc, "the pod in its place cannot be made: "+why.Error())
	}
	return rules.Result{}, fmt.Errorf("making pod %s/%s in the place of another: %w", replacement.Namespace, replacement.Name, why)
}

// changed names a container whose image or pull policy a webhook changed, although the image exists on the node only. It is empty if
// there is none.
func changed(asked, made *corev1.Pod) string {
	for _, c := range asked.Spec.Containers {
		i := slices.IndexFunc(made.Spec.Containers, func(o corev1.Container) bool { return o.Name == c.Name })
		if i < 0 {
			return fmt.Sprintf("the pod in its place would be made without container %s: the API server's admission takes it away", c.Name)
		}
		if o := made.Spec.Containers[i]; o.Image != c.Image || o.ImagePullPolicy != c.ImagePullPolicy {
			return fmt.Sprintf("container %s of the pod in its place would be made of image %s with imagePullPolicy %s: the API server's admission changes %s with %s, which it is to be made of",
				c.Name, o.Image, o.ImagePullPolicy, c.Image, c.ImagePullPolicy)
		}
	}
	return ""
}

// likeArchives has a pod in the place of one of that UID be made as of archives, before there are any.
func likeArchives(pod *corev1.Pod, of types.UID) *corev1.Pod {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = archived+string(of)+":"+c.Name, corev1.PullNever
	}
	return pod
}
