package migration

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// steady is for how long a pod in the place of another must have been ready without a container that began again.
	steady = 3 * time.Second
	// clean is how many periods of a real-time container must pass without a missed deadline, within patience.
	clean    = 10
	patience = 30 * time.Second
)

// watch is what was seen of the pod in the source's place when it was ready first. It begins anew when that changes.
type watch struct {
	Pod      types.UID `json:"pod"`
	Since    time.Time `json:"since"`
	Restarts int32     `json:"restarts"`
	// Misses and Drift of its real-time containers, as their agent has counted them.
	Misses int64 `json:"misses"`
	Drift  int64 `json:"drift"`
}

// prove is why it is not proven yet that the pod in the source's place does what the source did; empty: it is, by the evidence.
// What has been seen is on record, so that another process goes on with it.
func (m *migrate) prove(task orchestration.Task, pod *corev1.Pod) (evidence, why string, err error) {
	name := pod.Namespace + "/" + pod.Name
	now := watch{Pod: pod.UID, Since: m.Clock.Now().UTC(), Restarts: restarts(pod)}
	need := steady
	if why = idle(pod); why == "" {
		need, why = m.realtime(pod, &now)
	}
	if why != "" {
		delete(task.Progress, progressReady)
		return "", fmt.Sprintf("pod %s is on node %s, and %s", name, pod.Spec.NodeName, why), nil
	}
	seen := watch{}
	if text := task.Progress[progressReady]; text != "" {
		if err := json.Unmarshal([]byte(text), &seen); err != nil {
			return "", "", fmt.Errorf("reading entry %s of the action's progress: %w", progressReady, err)
		}
	}
	same := now
	same.Since = seen.Since
	if same != seen {
		text, err := json.Marshal(now)
		if err != nil {
			return "", "", fmt.Errorf("recording since when pod %s is ready: %w", name, err)
		}
		task.Progress[progressReady] = string(text)
		return "", fmt.Sprintf("pod %s runs on node %s, and must go on for %s", name, pod.Spec.NodeName, need), nil
	}
	if m.Clock.Now().Sub(seen.Since) < need {
		return "", fmt.Sprintf("pod %s runs on node %s, and must go on for %s", name, pod.Spec.NodeName, need), nil
	}
	return fmt.Sprintf("ready for %s without a container that began again", need), "", nil
}

// idle is why a pod does not serve; empty: it does.
func idle(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "is ending"
	case pod.Status.Phase != corev1.PodRunning:
		return "does not run yet"
	case !ready(pod):
		return "is not ready yet"
	}
	return ""
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// readySince is when the pod became ready, as its kubelet says; ok is false while it is not.
func readySince(pod *corev1.Pod) (time.Time, bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, !c.LastTransitionTime.IsZero()
		}
	}
	return time.Time{}, false
}

func restarts(pod *corev1.Pod) int32 {
	sum := int32(0)
	for _, s := range pod.Status.ContainerStatuses {
		sum += s.RestartCount
	}
	return sum
}

// realtime is why a governed pod does not have its cores and budgets; empty: it has, and is to be watched for so long. What was
// applied is what its agent has read back.
func (m *migrate) realtime(pod *corev1.Pod, now *watch) (need time.Duration, why string) {
	snapshot := m.Store.Snapshot()
	view, known := snapshot.Pod(pod.UID)
	switch {
	case !known:
		return 0, "does not run with its cores yet"
	case len(view.Governed) == 0:
		return steady, ""
	case pod.Annotations[mcv1.AnnotationConfigured] != "true":
		return 0, "does not run with its cores yet"
	}
	node, ok := snapshot.NodeView(pod.Spec.NodeName)
	if !ok || node.RTNode == nil {
		return steady, "" // nobody counts there
	}
	need = steady
	for _, g := range view.Governed {
		if g.Err != nil {
			continue
		}
		server, why := applied(node, pod.UID, g)
		if why != "" {
			return 0, why
		}
		now.Misses += server.Applied.Misses
		now.Drift += server.Applied.Drift
		need = max(need, min(clean*time.Duration(g.Server.Period)*time.Microsecond, patience))
	}
	return need, ""
}

// applied is a governed container as its node's agent has read it back, or why it is not as it should be.
func applied(node *state.NodeView, pod types.UID, g state.Governed) (*state.ServerView, string) {
	for i := range node.Servers {
		s := &node.Servers[i]
		if s.PodUID != pod || s.Container != g.Container {
			continue
		}
		switch {
		case s.Applied == nil:
			return nil, fmt.Sprintf("the node's agent does not show container %s yet", g.Container)
		case s.Applied.Error != "":
			return nil, fmt.Sprintf("the budget of container %s is not in force: %s", g.Container, s.Applied.Error)
		}
		return s, ""
	}
	return nil, fmt.Sprintf("container %s has no core yet", g.Container)
}
