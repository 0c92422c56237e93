package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// lease is for how long agents hold what they have without hearing from here, until a copy may be there, and renewed when it is renewed.
	lease   = 5 * time.Minute
	renewed = 3 * time.Minute
)

// checkpointOf is what the agents of both nodes are to do first.
func (m *migrate) checkpointOf(task orchestration.Task, source *corev1.Pod) *v1alpha1.NodeCheckpoint {
	nc := &v1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name: task.Object.Name, Finalizers: []string{v1alpha1.FinalizerCheckpoint}, Labels: map[string]string{v1alpha1.LabelMigrationAction: task.Object.Name},
		},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: source.Namespace, PodName: source.Name, PodUID: source.UID,
			SourceNode: source.Spec.NodeName, TargetNode: task.Object.Spec.TargetNode, Stage: v1alpha1.StageCheckpoint,
		},
	}
	for i := range source.Spec.Containers {
		nc.Spec.Containers = append(nc.Spec.Containers, v1alpha1.CheckpointedContainer{Name: source.Spec.Containers[i].Name})
	}
	nc.Spec.Expires = m.until(task, nc)
	return nc
}

// recordStopLimit records for how long the source may be stopped, also where a process has died before that was on record.
func recordStopLimit(task orchestration.Task, source *corev1.Pod) {
	if source == nil {
		return
	}
	if limit, probed := tolerance(source); probed {
		task.Progress[progressTolerance] = limit.String()
	}
}

// until is how long agents hold what they have while no controller renews that. The source's agent lets the source run on before its
// probe could end it, and what it has in memory. The time counts from when the agent says that it stopped the source, by the agent's
// clock, which ends it. Before that, the agent may have stopped the source at any time since the NodeCheckpoint was created. So the time
// counts from then, and is not prolonged.
func (m *migrate) until(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) metav1.Time {
	now := m.Clock.Now()
	until := now.Add(lease)
	limit, err := time.ParseDuration(task.Progress[progressTolerance])
	switch {
	case err != nil || task.Progress[progressEmptied] != "": // no probe ends it, or there is nothing left to end
	case nc.Status.Source != nil && nc.Status.Source.StoppedTime != nil:
		until = earlier(until, nc.Status.Source.StoppedTime.Add(limit-margin))
	case nc.Spec.Expires.IsZero():
		until = earlier(until, now.Add(limit-margin))
	default:
		until = earlier(until, nc.Spec.Expires.Time)
	}
	return metav1.NewTime(until.Truncate(time.Second)) // as it is stored
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// renew has the agents hold on while a controller is at work, for as long as the source may stand still.
func (m *migrate) renew(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) error {
	until, is := m.until(task, nc), nc.Spec.Expires
	if !transient(nc) || until.Equal(&is) || until.After(is.Time) && is.Sub(m.Clock.Now()) > renewed {
		return nil
	}
	return m.specify(ctx, nc, func(s *v1alpha1.NodeCheckpointSpec) { s.Expires = until })
}

// tired is why the source cannot stand still any longer; empty: it can.
func (m *migrate) tired(task orchestration.Task) string {
	limit, probed := time.ParseDuration(task.Progress[progressTolerance])
	since, stopped := time.Parse(time.RFC3339Nano, task.Progress[progressStopped])
	if probed != nil || stopped != nil || m.Clock.Now().Sub(since) < limit-margin {
		return ""
	}
	return fmt.Sprintf("the pod has stood still for almost %s, after which its liveness probe ends it, with what it has in memory", limit)
}

// orRelent has a stopped source run on if a step fails for long meanwhile, as where a webhook for pods does not answer. If the source is
// gone, or has nothing in memory any longer, the controller retries as long as there is time.
func (m *migrate) orRelent(task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint, r rules.Result, err error) (rules.Result, error) {
	if err == nil {
		delete(task.Progress, progressFailing)
		return r, nil
	}
	if m.since(task, progressFailing) <= undecided || source == nil || emptied(task, source, nc) != "" {
		return r, err
	}
	return rules.Result{Undo: true, Message: fmt.Sprintf("it goes wrong for longer than %s: %v", undecided, err)}, nil
}

// impatient returns why a pod cannot stand still for as long as it takes to write its state; it is empty if it can. The kubelet does not
// report how often a startup probe has failed already.
func impatient(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.StartupProbe != nil && !started(pod, c.Name) {
			return fmt.Sprintf("the startup probe of container %s has not succeeded yet, and may end it as soon as it stands still", c.Name)
		}
	}
	if limit, probed := tolerance(pod); probed && limit < leastTolerance {
		return fmt.Sprintf("its liveness probe may end it after %s of standing still, and it has to stand still for %s at least", limit, leastTolerance)
	}
	return ""
}

// started tells whether a container's startup probe has succeeded.
func started(pod *corev1.Pod, container string) bool {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			return s.Started != nil && *s.Started
		}
	}
	return false
}
