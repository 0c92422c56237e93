package migration

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/rt"
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
	pod      types.UID
	since    time.Time
	restarts int32
	// misses and drift of its real-time containers, as their agent has counted them.
	misses, drift int64
}

// watches are those of actions under way, by name. They are not on record: a process that comes later watches anew, which takes seconds
// and asks the API server for nothing.
type watches struct {
	sync.Mutex
	of map[string]watch
	// progress is how far agents were when that was last another, and since when.
	progress map[string]sight
	// missing is since when this process waits for the pod that an action's owner is to create.
	missing map[string]time.Time
	// gating is when the API server last said that it gates what an action's owner makes.
	gating map[string]time.Time
}

// asksGating reports whether it is time to ask that.
func (w *watches) asksGating(action string, now time.Time) bool {
	w.Lock()
	defer w.Unlock()
	at, known := w.gating[action]
	return !known || now.Sub(at) >= askedAgain
}

// noteGated remembers that answer.
func (w *watches) noteGated(action string, now time.Time) {
	w.Lock()
	defer w.Unlock()
	w.gating[action] = now
}

// sight is what was seen, and since when.
type sight struct {
	of    string
	since time.Time
}

// unchanged returns for how long what an action waits for has been the same, as this process has seen it.
func (w *watches) unchanged(action, progress string, now time.Time) time.Duration {
	w.Lock()
	defer w.Unlock()
	if w.progress[action].of != progress {
		w.progress[action] = sight{progress, now}
	}
	return now.Sub(w.progress[action].since)
}

// awaited returns for how long this process has waited for the pod that an action's owner is to create.
func (w *watches) awaited(action string, now time.Time) time.Duration {
	w.Lock()
	defer w.Unlock()
	since, known := w.missing[action]
	if !known {
		since = now
		w.missing[action] = now
	}
	return now.Sub(since)
}

// begin says since when a pod has been as it is now. One that is not as it was begins anew.
func (w *watches) begin(action string, now watch) (since time.Time) {
	w.Lock()
	defer w.Unlock()
	same := now
	same.since = w.of[action].since
	if w.of[action] != same {
		w.of[action] = now
	}
	return w.of[action].since
}

func (w *watches) end(action string) {
	w.Lock()
	defer w.Unlock()
	delete(w.of, action)
	delete(w.progress, action)
	delete(w.missing, action)
	delete(w.gating, action)
}

// prove is why it is not proven yet that the pod in the source's place does what the source did; empty: it is, by the evidence.
func (m *migrate) prove(task orchestration.Task, pod *corev1.Pod) (evidence, why string) {
	name := pod.Namespace + "/" + pod.Name
	now := watch{pod: pod.UID, since: m.Clock.Now(), restarts: restarts(pod)}
	need := steady
	if why = idle(pod); why == "" {
		need, why = m.realtime(pod, &now)
	}
	if why == "" && v1alpha1.MigrationStrategy(task.Progress[progressStrategy]) == v1alpha1.StrategyCheckpoint {
		why = m.demoted(task, pod)
	}
	if why != "" {
		m.watches.end(task.Object.Name)
		return "", fmt.Sprintf("pod %s is on node %s, and %s", name, pod.Spec.NodeName, why)
	}
	if since := m.watches.begin(task.Object.Name, now); m.Clock.Since(since) < need {
		return "", fmt.Sprintf("pod %s runs on node %s, and must go on for %s", name, pod.Spec.NodeName, need)
	}
	return fmt.Sprintf("ready for %s without a container that began again", need), ""
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

// wasReady tells whether a pod that is not ready was ready since its containers run. Its kubelet reports it unready from before they
// started, unless it was ready in between. No controller need have been running to see it.
func wasReady(pod *corev1.Pod) bool {
	began := time.Time{}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil || s.State.Running.StartedAt.Unix() <= 0 {
			return false
		}
		if at := s.State.Running.StartedAt.Time; at.After(began) {
			began = at
		}
	}
	return !began.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.LastTransitionTime.After(began)
	})
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
		return steady, "" // no agent counts there
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
		now.misses += server.Applied.Misses
		now.drift += server.Applied.Drift
		need = max(need, min(clean*time.Duration(g.Server.Period)*time.Microsecond, patience))
	}
	return need, ""
}

// demoted returns why a pod that came with its state is not as real-time as its source, whose stopped threads keep their scheduling
// policies. A restore may lose them without a word. It is empty if the pod is, or if the source's threads are unknown.
func (m *migrate) demoted(task orchestration.Task, pod *corev1.Pod) string {
	had := map[string]int32{}
	target, there := m.Store.Snapshot().NodeView(pod.Spec.NodeName)
	if json.Unmarshal([]byte(task.Progress[progressThreads]), &had) != nil || !there {
		return ""
	}
	for container, now := range realtimeThreads(target, pod.UID) {
		if now < had[container] {
			return fmt.Sprintf("container %s has %d threads of a real-time policy, and its source %d", container, now, had[container])
		}
	}
	return ""
}

// remember records what no agent may be able to tell of the source once it is gone: since when it is stopped, and with how many
// real-time threads.
func (m *migrate) remember(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) {
	side := nc.Status.Source
	if side == nil || side.StoppedTime == nil || side.Message != "" { // which says that it does not stand still any longer
		return
	}
	task.Progress[progressStopped] = side.StoppedTime.UTC().Format(time.RFC3339Nano)
	source, here := m.Store.Snapshot().NodeView(task.Object.Spec.Node)
	if !here {
		return
	}
	if threads := realtimeThreads(source, task.Object.Spec.Pods[0].UID); len(threads) > 0 {
		if text, err := json.Marshal(threads); err == nil { // of numbers it is always nil
			task.Progress[progressThreads] = string(text)
		}
	}
}

// realtimeThreads of a pod's governed containers, as their agent has read them back.
func realtimeThreads(node *state.NodeView, pod types.UID) map[string]int32 {
	out := map[string]int32{}
	for i := range node.Servers {
		if s := &node.Servers[i]; s.PodUID == pod && s.Applied != nil {
			out[s.Container] = s.Applied.RealtimeThreads
		}
	}
	return out
}

// otherwise is what the agent has read back of a container that is not what its node was told, or its McKube asks for; empty: nothing.
func otherwise(s *state.ServerView, g state.Governed) string {
	is, period, most := s.Applied, g.Server.Period, max(g.Server.Low, g.Server.High)
	if s.Spec != nil {
		period, most = s.Spec.PeriodUs, s.Spec.BudgetHighUs
	}
	switch {
	case is.PeriodUs != period, is.BudgetUs <= 0, is.BudgetUs > most:
		return fmt.Sprintf("container %s has a budget of %d of %d us, and up to %d of %d are asked for", g.Container, is.BudgetUs, is.PeriodUs, most, period)
	case s.Spec != nil && !slices.Equal(is.Cores, s.Spec.Cores):
		return fmt.Sprintf("container %s may run on cores %v, and not on %v", g.Container, is.Cores, s.Spec.Cores)
	case s.Spec == nil && len(is.Cores) > 0 && s.Witness != rt.NoCore && !slices.Contains(is.Cores, int32(s.Witness)): //nolint:gosec // a core
		return fmt.Sprintf("container %s may run on cores %v, and its core is %d", g.Container, is.Cores, s.Witness)
	}
	return ""
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
		return s, otherwise(s, g)
	}
	return nil, fmt.Sprintf("container %s has no core yet", g.Container)
}
