package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// unmadeFor is how long the kubelet may fail to make the containers of a copy whose source may run on: that stands still meanwhile.
	unmadeFor = 3 * time.Second
	// annotationFailing is, on a NodeCheckpoint, which pod's containers its kubelet fails to make of the state, and since when, as RFC 3339.
	annotationFailing = v1alpha1.Group + "/failing-since"
	// leastToRestore is how long a copy may take to go on with its state; perGiB for each GiB of it, where that is longer.
	leastToRestore = 45 * time.Second
	// margin is what must be left of a liveness probe's tolerance for the source to run on in time. leastTolerance is the least tolerance
	// that allows a checkpoint.
	margin, leastTolerance = 4 * time.Second, 10 * time.Second
)

// hopelessly are the reasons of waiting containers that do not pass. passingly are those that may pass by themselves: the runtime
// restarts, what the kubelet mounts was not available for a while, or a large state takes longer than the kubelet's
// runtimeRequestTimeout.
var (
	hopelessly = []string{"ErrImageNeverPull", "InvalidImageName"}
	passingly  = []string{"CreateContainerError", "RunContainerError", "CreateContainerConfigError", "CrashLoopBackOff"}
)

// reasonStartError is what containerd says of a container that it could not start: of a state, that it could not restore.
const reasonStartError = "StartError"

// unmade returns why no container is restored, or none any longer. It is empty if the kubelet does not say so, or if that may pass yet,
// as it has lasted for no longer than the limit. A node that is dead tries nothing.
func (m *migrate) unmade(ctx context.Context, nc *v1alpha1.NodeCheckpoint, pod *corev1.Pod, limit time.Duration) (string, error) {
	if why := unmakeable(nc, pod); why != "" {
		return why, nil
	}
	why := waitsFor(pod, passingly)
	if why != "" {
		away, err := m.stranded(ctx, pod)
		if err != nil {
			return "", err
		}
		if away != "" {
			why = ""
		}
	}
	since, err := m.failing(ctx, nc, pod, why != "")
	if why == "" || err != nil || m.Clock.Now().Sub(since) <= limit {
		return "", err
	}
	return why, nil
}

// failing returns since when the kubelet fails to create a pod's containers. The NodeCheckpoint records it: neither the death of a
// process nor the end of the action changes that.
func (m *migrate) failing(ctx context.Context, nc *v1alpha1.NodeCheckpoint, pod *corev1.Pod, fails bool) (time.Time, error) {
	noted := nc.Annotations[annotationFailing]
	of, at, _ := strings.Cut(noted, " ")
	since, err := time.Parse(time.RFC3339Nano, at)
	if fails && of == string(pod.UID) && err == nil || !fails && noted == "" {
		return since, nil
	}
	after := nc.DeepCopy()
	since = m.Clock.Now()
	if metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotationFailing, string(pod.UID)+" "+since.UTC().Format(time.RFC3339Nano)); !fails {
		delete(after.Annotations, annotationFailing)
	}
	if err := m.Client.Patch(ctx, after, client.MergeFrom(nc)); err != nil {
		return time.Time{}, fmt.Errorf("noting on NodeCheckpoint %s since when no container is made: %w", nc.Name, err)
	}
	*nc = *after
	return since, nil
}

// unmakeable is why no container will ever go on with the state; empty: one may.
func unmakeable(nc *v1alpha1.NodeCheckpoint, pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if !slices.ContainsFunc(nc.Spec.Containers, func(c v1alpha1.CheckpointedContainer) bool { return c.Name == s.Name }) {
			continue
		}
		if failed := unstarted(&s); failed != nil {
			return unmadeOf(pod, s.Name, failed.Reason, failed.Message)
		}
		if s.RestartCount > 0 {
			return fmt.Sprintf("container %s of pod %s/%s, which went on with its state, has ended", s.Name, pod.Namespace, pod.Name)
		}
	}
	if why := waitsFor(pod, hopelessly); why != "" {
		return why
	}
	return misled(nc, pod)
}

// waitsFor says which container of a pod waits for one of those reasons; empty: none does.
func waitsFor(pod *corev1.Pod, reasons []string) string {
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && slices.Contains(reasons, w.Reason) {
			return unmadeOf(pod, s.Name, w.Reason, w.Message)
		}
	}
	return ""
}

func unmadeOf(pod *corev1.Pod, container, reason, message string) string {
	return fmt.Sprintf("container %s of pod %s/%s cannot be made of its state: %s: %s", container, pod.Namespace, pod.Name, reason, message)
}

// misled names a container that would be created from anything but its state, as an admission webhook changed the pod at its creation.
// It is empty if there is none, or if all containers are restored.
func misled(nc *v1alpha1.NodeCheckpoint, pod *corev1.Pod) string {
	if nc.Status.Target == nil || unrestored(nc, pod) == "" {
		return ""
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if image := imageOf(nc, c.Name); image != "" && (c.Image != image || c.ImagePullPolicy != corev1.PullNever) {
			return fmt.Sprintf("container %s of pod %s/%s is not made of its state: the API server's admission has changed image %s with imagePullPolicy %s to %s with %s",
				c.Name, pod.Namespace, pod.Name, image, corev1.PullNever, c.Image, c.ImagePullPolicy)
		}
	}
	return ""
}

// unstarted is how the runtime failed to start a container; nil: it did not. The kubelet starts it once more, and counts that as it counts
// containers that have run.
func unstarted(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil && t.Reason == reasonStartError {
			return t
		}
	}
	return nil
}

// toRestore is how long a pod may take to go on with its state, by the size of that.
func toRestore(nc *v1alpha1.NodeCheckpoint) time.Duration {
	if nc.Status.Target == nil {
		return leastToRestore
	}
	return max(leastToRestore, time.Duration(float64(perGiB)*float64(nc.Status.Target.Bytes)/gib))
}

// overdue gives up a copy that was not restored in the time that its size allows, or has not proven itself since. Of all timeouts only
// this rolls back a copy that serves: it does not match its source.
func (m *migrate) overdue(task orchestration.Task, nc *v1alpha1.NodeCheckpoint, pod *corev1.Pod, r rules.Result) rules.Result {
	since, limit, serving := pod.CreationTimestamp.Time, toRestore(nc), serves(task, pod, nc)
	if serving {
		at, ready := readySince(pod)
		if !ready { // for a moment, it may be: what it has done since it was is nowhere else
			return r
		}
		since, limit = at, leastToRestore
	}
	if r.Undo || m.Clock.Now().Sub(since) <= limit {
		return r
	}
	if serving {
		task.Progress[progressUnfit] = r.Message
	}
	return rules.Result{Undo: true, Message: fmt.Sprintf("it took longer than %s to go on with the state: %s", limit.Round(time.Second), r.Message)}
}

// broken is why the state cannot be had, or the source cannot stand still any longer; empty: it may go on.
func (m *migrate) broken(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) string {
	if veto := m.interrupted(task, nc); veto != "" {
		return veto
	}
	return m.tired(task)
}

// tolerance is how long a pod may stand still before the first of its liveness probes ends a container, if it has any.
func tolerance(pod *corev1.Pod) (least time.Duration, probed bool) {
	for i := range pod.Spec.Containers {
		p := pod.Spec.Containers[i].LivenessProbe
		if p == nil {
			continue
		}
		period, failures := max(p.PeriodSeconds, 1), max(p.FailureThreshold, 1)
		if d := time.Duration(period) * time.Duration(failures-1) * time.Second; !probed || d < least {
			least = d
		}
		probed = true
	}
	return least, probed
}

// untimely is why a pod cannot stand still for as long as it takes to write its state; empty: it can.
func untimely(_ context.Context, q question) (string, error) {
	return impatient(q.pod), nil
}

// partial names a container of the pod that would not be restored with the others: a sidecar, which starts anew, or one that its owner
// does not create.
func (d Dependencies) partial(ctx context.Context, q question) (string, error) {
	for i := range q.pod.Spec.InitContainers {
		c := &q.pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return fmt.Sprintf("container %s is a sidecar, which begins anew in another pod", c.Name), nil
		}
	}
	if !isReplicaSet(q.pod) {
		return "", nil
	}
	set, err := d.replicaSet(ctx, q.pod)
	if err != nil || set == nil {
		return "", err
	}
	for i := range q.pod.Spec.Containers {
		name := q.pod.Spec.Containers[i].Name
		if !slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }) {
			return fmt.Sprintf("container %s is not of ReplicaSet %s: somebody has added it to the pod, and would add it anew", name, set.Name), nil
		}
	}
	return "", nil
}

// outweighed names an unready pod that the source's ReplicaSet would remove before the source; it is empty if the source is the first to
// go, or has gone.
func (m *migrate) outweighed(ctx context.Context, source *corev1.Pod) (string, error) {
	if source == nil {
		return "", nil
	}
	by := metav1.GetControllerOf(source)
	if by == nil || !isReplicaSet(source) {
		return "", nil
	}
	pods, err := m.siblings(ctx, m.Client, source.Namespace, *by)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if p := &pods[i]; p.UID != source.UID && !ready(p) {
			return fmt.Sprintf("waits until pod %s of the same ReplicaSet is ready, which would go otherwise", p.Name), nil
		}
	}
	return "", nil
}
