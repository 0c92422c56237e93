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

// refused tells whether the API server does not want a pod: its plugins and policies say so with one of these, and webhooks with any of them.
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

// inadmissible is why the API server would not make a pod of archives as it is to be; empty: it would. Those who mind what images there are (policies, webhooks,
// plugin AlwaysPullImages) refuse it, or change it into one that cannot go on with a state. It is asked under another name, as its own is taken. That a
// ResourceQuota has no room for it beside its source, which it asks last of all, says nothing.
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

// unborn is what becomes of a state whose pod the API server does not make: it is asked for again for a while, and, where it is our own policy or a
// ResourceQuota that refuses it, which would refuse the owner's as well, for as long as there is time.
func (m *migrate) unborn(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod, why error) (rules.Result, error) {
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
