package migration

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// runtimeSays ends the evidence of a copy that goes on with its source's state.
const runtimeSays = ", and the runtime says that its containers were restored"

// verified says by what evidence the pod in the source's place is what it should be, if there is any yet.
func verified(task orchestration.Task, now time.Time) func(*v1alpha1.PodMigrationStatus) {
	return func(s *v1alpha1.PodMigrationStatus) {
		if task.Progress[progressEvidence] == "" {
			return
		}
		setCondition(s, v1alpha1.ConditionMigrationVerified, metav1.ConditionTrue, "Steady", task.Progress[progressEvidence], now)
	}
}

func setCondition(s *v1alpha1.PodMigrationStatus, kind string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	c := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
	meta.SetStatusCondition(&s.Conditions, c)
}

// carrying says how much state goes along, and how much of it the target has.
func carrying(nc *v1alpha1.NodeCheckpoint) func(*v1alpha1.PodMigrationStatus) {
	return func(s *v1alpha1.PodMigrationStatus) {
		s.Checkpoint = &v1alpha1.MigrationCheckpointStatus{}
		if nc.Status.Source == nil {
			return
		}
		for _, a := range nc.Status.Source.Archives {
			there := v1alpha1.MigrationArchive{Container: a.Container, Bytes: a.Bytes, Digest: a.Digest}
			if saved(nc) {
				there.Transferred = a.Bytes
			}
			s.Checkpoint.Containers = append(s.Checkpoint.Containers, there)
		}
	}
}

// unrestored is why it is not known that the copy's containers go on from the state that was taken; empty: they do, as the
// target's runtime says of those very containers. A pod that only runs may have begun anew.
func unrestored(nc *v1alpha1.NodeCheckpoint, twin *corev1.Pod) string {
	ids := map[string]string{}
	for _, s := range twin.Status.ContainerStatuses {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		ids[s.Name] = id
	}
	restored := map[string]string{}
	if nc.Status.Target != nil {
		for _, a := range nc.Status.Target.Archives {
			restored[a.Container] = a.Restored
		}
	}
	for _, c := range nc.Spec.Containers {
		if restored[c.Name] == "" || restored[c.Name] != ids[c.Name] {
			return fmt.Sprintf("pod %s/%s is ready, and the runtime of node %s does not say yet that container %s was restored", twin.Namespace, twin.Name, nc.Spec.TargetNode, c.Name)
		}
	}
	return ""
}
