package resourcepressure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// keptSeconds is for how long PodMigrations are kept at least when they are over, and for how long a workload rests of which one has failed: its pod
// was evicted for nothing, and may have come back to its node, as nothing binds pods without a McKube to a target.
const keptSeconds = 3600

// relieve chooses pods of the nodes under pressure, and nodes for them.
func (w *world) relieve(ctx context.Context) error {
	if len(w.pressed) == 0 {
		return nil
	}
	rooms := w.rooms(ctx)
	for _, p := range w.pressed {
		if err := w.relieveNode(ctx, p, rooms); err != nil {
			return err
		}
	}
	return nil
}

// relieveNode has pods leave one node, until it would be free of the pressure or as many leave it as may.
func (w *world) relieveNode(ctx context.Context, p pressure, rooms []*room) error {
	may := w.Options.PodsPerNode - w.history.left(p.node.Name, p.by.interval)
	leavesCPU, leavesMemory := w.leaving(ctx, p.node)
	if may <= 0 || enough(p.track, p.by, leavesCPU, leavesMemory) {
		return nil
	}
	list, stay, err := w.candidates(ctx, p)
	if err != nil {
		return err
	}
	nowhere := 0
	for _, c := range list {
		if may == 0 || enough(p.track, p.by, leavesCPU, leavesMemory) {
			return nil
		}
		if w.resting(c.Workload) { // another pod of it goes already
			stay[staysCooldown]++
			continue
		}
		to, err := w.target(ctx, p, c, rooms)
		if err != nil {
			return err
		}
		if to == nil {
			nowhere++
			metrics.ResourceDecisions.WithLabelValues(metrics.DecisionNoTarget).Inc()
			continue
		}
		if err := w.move(ctx, p, c, to); err != nil {
			return err
		}
		to.take(w.Source.Name(), c)
		may, leavesCPU, leavesMemory = may-1, leavesCPU+c.CPU, leavesMemory+c.Memory
	}
	if may > 0 && !enough(p.track, p.by, leavesCPU, leavesMemory) {
		w.unanswered(p, nowhere, stay)
	}
	return nil
}

// unanswered tells that more would have to leave a node than can.
func (w *world) unanswered(p pressure, nowhere int, stay map[string]int) {
	metrics.ResourceDecisions.WithLabelValues(metrics.DecisionNoVictim).Inc()
	var why []string
	if nowhere > 0 {
		why = append(why, fmt.Sprintf("%d find no node that takes them and stays at or below the threshold", nowhere))
	}
	for _, reason := range []string{
		staysSystem, staysExcluded, staysNotRunning, staysStatic, staysDaemonSet, staysAsked, staysNever, staysOwnerless, staysLocal, staysUndecidable,
		staysMoving, staysStill, staysCooldown, staysNoRelief,
	} {
		if n := stay[reason]; n > 0 {
			why = append(why, fmt.Sprintf("%d stay (%s)", n, reason))
		}
	}
	text := "nothing else is on it"
	if len(why) > 0 {
		text = "of its pods " + strings.Join(why, ", ")
	}
	w.Recorder.Publish(events.ResourcePressureUnanswered(p.node, string(p.node.UID), text))
}

// candidates are the pods of a node that may go, in their order, and how many stay for what reason.
func (w *world) candidates(ctx context.Context, p pressure) (list []*candidate, stay map[string]int, err error) {
	pods, err := w.podsOn(ctx, p.node.Name)
	if err != nil {
		return nil, nil, err
	}
	states := &v1alpha1.NodeCheckpointList{}
	if err := w.Client.List(ctx, states); err != nil {
		return nil, nil, fmt.Errorf("listing NodeCheckpoints: %w", err)
	}
	stay = map[string]int{}
	snapshot := w.Store.Snapshot()
	for i := range pods {
		c, of, err := w.candidate(ctx, snapshot, &pods[i])
		switch {
		case err != nil:
			return nil, nil, err
		case of != p.by && c.Undecidable == nil: // judged by another setting
			continue
		}
		c.Still = slices.ContainsFunc(states.Items, func(nc v1alpha1.NodeCheckpoint) bool { return nc.Holds(c.Pod.UID) })
		c.CPU, c.Memory = usage.Shares(w.Source.Name(), p.node, c.Amount)
		if reason := c.stays(p.track); reason != "" {
			stay[reason]++
			continue
		}
		list = append(list, c)
	}
	order(list, p.track, w.now)
	return list, stay, nil
}

// candidate puts together what the choice needs to know of a pod, and what it is judged by.
func (w *world) candidate(ctx context.Context, snapshot *state.Snapshot, p *corev1.Pod) (*candidate, setting, error) {
	c := &candidate{Pod: p, Workload: workloadOf(p), Amount: w.amount(ctx, p), Moving: w.history.moving(p.UID, p.Namespace, p.Name)}
	c.Resting = w.resting(c.Workload)
	c.Excluded = w.Options.Namespaces != nil && !w.Options.Namespaces.Has(p.Namespace)
	policy, err := w.Policies.For(ctx, p)
	if err != nil {
		c.Undecidable = err
	}
	if view, ok := snapshot.Pod(p.UID); ok {
		for _, g := range view.Governed {
			c.McKubes = append(c.McKubes, g.McKube)
			c.Criticality = max(c.Criticality, rank(g.McKube.Spec.Criticality))
		}
	}
	c.Strategy = strategyOf(p, c.McKubes, policy, w.Options.Checkpointing)
	c.Local, err = w.local(ctx, p)
	return c, w.settingOf(policy), err
}

// resting tells whether a workload is left alone for a while.
func (w *world) resting(workload string) bool {
	if at, ok := w.reported[workload]; ok && w.now.Sub(at) < w.Options.WorkloadCooldown {
		return true
	}
	return w.history.resting(workload)
}

// target is the node that a pod goes to; nil: none takes it.
func (w *world) target(ctx context.Context, p pressure, c *candidate, rooms []*room) (*room, error) {
	var list []*room
	for _, r := range rooms {
		if !w.history.apart(p.node.Name, r.Node.Name, p.by.interval) {
			list = append(list, r)
		}
	}
	limit := min(p.by.threshold(), w.settingOf(nil).threshold())
	snapshot := w.Store.Snapshot()
	view, governed := snapshot.Pod(c.Pod.UID)
	asked := 0
	for _, r := range preferred(c, list, w.Source.Name(), limit) {
		if governed && len(view.Governed) > 0 {
			if _, ok := snapshot.Destination(c.Pod.UID, func(n *state.NodeView) bool { return n.Name == r.Node.Name }); !ok {
				continue
			}
		}
		if asked++; asked > tried {
			return nil, nil
		}
		why, err := w.Placement.Refusal(ctx, r.Node.Name, append(r.Coming[:len(r.Coming):len(r.Coming)], v1alpha1.Unpinned(c.Pod)))
		if err != nil {
			return nil, err
		}
		if why == "" {
			return r, nil
		}
	}
	return nil, nil
}

// move puts the decision on record: as a PodMigration, or, where nothing is to be moved, in Events alone.
func (w *world) move(ctx context.Context, p pressure, c *candidate, to *room) error {
	why := fmt.Sprintf("node %s: %s", p.node.Name, p.track.words(p.by, w.Source.Name()))
	if w.Options.Mode != ModeMigrate {
		w.reported[c.Workload] = w.now
		metrics.ResourceDecisions.WithLabelValues(metrics.DecisionReport).Inc()
		w.Recorder.Publish(
			events.ResourcePressureReport(c.Pod, string(c.Pod.UID), podName(c.Pod), to.Node.Name, why),
			events.ResourcePressureReport(p.node, string(p.node.UID), podName(c.Pod), to.Node.Name, why))
		return nil
	}
	m := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Pod.Namespace, Name: w.history.next(c.Pod, p.node.Name, p.begun), Annotations: map[string]string{
			AnnotationSourceNode: p.node.Name, AnnotationWorkload: c.Workload, AnnotationAmount: encode(c.Amount),
			AnnotationDecided: w.now.UTC().Format(time.RFC3339Nano),
		}, Finalizers: []string{v1alpha1.FinalizerMigration}}, // which it gets in any case, by a write more
		Spec: v1alpha1.PodMigrationSpec{
			PodName: c.Pod.Name, PodUID: c.Pod.UID, TargetNode: to.Node.Name, Trigger: v1alpha1.TriggerResourcePressure, Reason: why,
			TTLSecondsAfterFinished: ptr.To(int32(max(keptSeconds, w.Options.WorkloadCooldown.Seconds(), w.Options.PairCooldown.Seconds()))),
		},
	}
	switch err := w.Client.Create(ctx, m); {
	case apierrors.IsAlreadyExists(err): // a process before this one has made it
	case err != nil:
		return fmt.Errorf("creating PodMigration %s/%s: %w", m.Namespace, m.Name, err)
	default:
		metrics.ResourceDecisions.WithLabelValues(metrics.DecisionMigrate).Inc()
		w.Recorder.Publish(events.ResourcePressureAnswered(p.node, string(p.node.UID), podName(c.Pod), to.Node.Name, m.Name, why))
	}
	w.history.list = append(w.history.list, m)
	return nil
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
