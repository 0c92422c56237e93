package ladder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// preempt evicts the pods of an action, one at a time.
type preempt struct {
	client client.Client
	api    client.Reader
	store  *state.Store
}

// NewPreempt makes the executor of preemptions against real-time pressure. It evicts each pod by the Eviction API. The pod must
// be the same, and strictly less critical than the beneficiary, and the pressure must last. The executor evicts several pods
// only while a container lacks the room that they are to give, and the first only when all may go. It reads the pods from the
// API server and not from a cache.
func NewPreempt(c client.Client, api client.Reader, store *state.Store) orchestration.Executor {
	return preempt{client: c, api: api, store: store}
}

// Step implements orchestration.Executor.
func (e preempt) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if err := e.store.Synced(); err != nil {
		return rules.Result{}, fmt.Errorf("judging who must go: %w", err)
	}
	left, ending, err := e.left(ctx, task.Object.Spec.Pods)
	if err != nil {
		return rules.Result{}, err
	}
	gone := len(task.Object.Spec.Pods) - len(left)
	switch {
	case gone == len(task.Object.Spec.Pods):
		return rules.Result{Outcome: rules.Succeeded, Message: told(task.Object, left)}, nil
	case task.Undoing():
		return e.undone(task.Object, left), nil
	case ending != "":
		return rules.Result{Message: "waits for pod " + ending + " to end"}, nil
	}
	if why, eased := e.needless(task.Object, left); why != "" {
		switch {
		case gone == 0:
			return rules.Result{Undo: true, Message: why}, nil
		case eased:
			return rules.Result{Outcome: rules.Succeeded, Message: told(task.Object, left) + "; " + why}, nil
		}
		return rules.Result{Outcome: rules.Failed, Message: told(task.Object, left) + "; " + why}, nil
	}
	if n, ok := e.store.Snapshot().NodeView(task.Object.Spec.Node); ok && !sees(n) {
		return rules.Result{Message: "waits for the agent of node " + n.Name + " to be heard again"}, nil
	}
	return e.evictNext(ctx, task.Object.Name, left, gone)
}

// left are the pods that still exist, and the name of one that is being deleted.
func (e preempt) left(ctx context.Context, pods []v1alpha1.ActionPod) (left []*corev1.Pod, ending string, err error) {
	for _, named := range pods {
		pod := &corev1.Pod{}
		err := e.api.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, "", fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
		}
		if err != nil || pod.UID != named.UID || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		left = append(left, pod)
		if pod.DeletionTimestamp != nil {
			ending = named.Namespace + "/" + named.Name
		}
	}
	return left, ending, nil
}

// needless is why no further pod needs to go, or must not; empty: they go. eased tells whether the pressure no longer needs it.
func (e preempt) needless(o *v1alpha1.RTAction, left []*corev1.Pod) (why string, eased bool) {
	snapshot := e.store.Snapshot()
	n, ok := snapshot.NodeView(o.Spec.Node)
	if !ok || n.RTNode == nil {
		return "the node is gone", true
	}
	if why := past(o, snapshot, n); why != "" {
		return why, true
	}
	most, err := rt.ParseCriticality(o.Spec.Beneficiary.Criticality)
	if err != nil {
		return err.Error(), false
	}
	if why := unsuitable(n, most, left); why != "" {
		return why, false
	}
	if len(o.Spec.Pods) > 1 && allFit(snapshot, n, most, left) {
		return "there is room without", true
	}
	return "", false
}

// past is why the node, or the beneficiary, no longer needs relief; empty: it does.
func past(o *v1alpha1.RTAction, snapshot *state.Snapshot, n *state.NodeView) string {
	if n.Deleting {
		return "the node is being closed"
	}
	if now := episodeOf(n); !now.Pressed() || now.Cause() != o.Spec.Cause {
		return "the pressure has gone"
	}
	if b := o.Spec.Beneficiary; b.Kind == "Pod" && b.UID != "" {
		if view, _ := snapshot.Pod(b.UID); !stays(snapshot, b.UID) || view.NodeName != o.Spec.Node {
			return fmt.Sprintf("pod %s/%s, for which it is, is no longer on the node", b.Namespace, b.Name)
		}
	}
	return ""
}

// unsuitable is why a remaining pod must not go for a container of a criticality; empty: all may.
func unsuitable(n *state.NodeView, most rt.Criticality, left []*corev1.Pod) string {
	pods := podsOn(n)
	for _, pod := range left {
		switch servers, ok := pods[pod.UID]; {
		case !ok:
			return fmt.Sprintf("pod %s/%s has no real-time container on the node any longer", pod.Namespace, pod.Name)
		case criticalityOf(servers) >= most:
			return fmt.Sprintf("pod %s/%s is no longer less critical", pod.Namespace, pod.Name)
		}
	}
	return ""
}

// allFit tells whether all containers of a criticality have room for their highest budgets beside the remaining pods. The
// executor evicts several pods only because a container lacks that room, on a core of theirs or without a core. It may evict a
// single pod because that frees bandwidth.
func allFit(snapshot *state.Snapshot, n *state.NodeView, of rt.Criticality, left []*corev1.Pod) bool {
	cores, pods := map[int]bool{rt.NoCore: true}, podsOn(n)
	for _, pod := range left {
		for _, s := range pods[pod.UID] {
			cores[s.Physical] = true
		}
	}
	c, now := contentionOf(n, nil, nil), layoutOf(n)
	for i := range n.Servers {
		s := &n.Servers[i]
		if s.McKube == nil || !s.Running || !stays(snapshot, s.PodUID) || s.Criticality != of || !cores[now.on(s.ID)] {
			continue
		}
		if !c.passes(now, AffectedContainer{ServerView: s, Wanted: wanted(s)}) {
			return false
		}
	}
	return true
}

// evictNext evicts the first pod, if all remaining pods may go: by their PodDisruptionBudgets together, and each by a dry run.
// Otherwise one pod would go for nothing. If a policy forbids an eviction before any pod has gone, the executor calls the action
// off. It does the same if a frozen pod would have to go, because its memory may exist nowhere else.
func (e preempt) evictNext(ctx context.Context, action string, left []*corev1.Pod, gone int) (rules.Result, error) {
	switch kept, err := eviction.Together(ctx, e.api, left); {
	case err != nil:
		return rules.Result{}, err
	case len(kept) > 0:
		return refusal(kept[0].Pod, eviction.Answer{Verdict: eviction.Later, Why: kept[0].Why}, gone), nil
	}
	states := &v1alpha1.NodeCheckpointList{}
	if err := e.api.List(ctx, states); err != nil {
		return rules.Result{}, fmt.Errorf("listing NodeCheckpoints: %w", err)
	}
	for _, pod := range left {
		if i := slices.IndexFunc(states.Items, func(nc v1alpha1.NodeCheckpoint) bool { return nc.Holds(pod.UID) }); i >= 0 {
			return refusal(pod, eviction.Answer{Verdict: eviction.Never, Why: "it stands still for NodeCheckpoint " + states.Items[i].Name}, gone), nil
		}
		switch answer, err := eviction.Ask(ctx, e.client, pod, client.DryRunAll); {
		case err != nil:
			return rules.Result{}, err
		case answer.Refused():
			return refusal(pod, answer, gone), nil
		}
	}
	pod := left[0]
	// The annotation lets the eviction pass the gate that turns evictions into migrations. Such a migration would wait for this
	// action.
	answer, err := eviction.AskAs(ctx, e.client, pod, map[string]string{v1alpha1.AnnotationAction: action})
	switch {
	case err != nil:
		return rules.Result{}, err
	case answer.Refused():
		return refusal(pod, answer, gone), nil
	case answer.Verdict == eviction.Gone:
		return rules.Result{Message: "pod " + pod.Namespace + "/" + pod.Name + " has gone"}, nil
	}
	metrics.Preemptions.WithLabelValues(metrics.ActionEvict).Inc()
	return rules.Result{Message: "evicted pod " + pod.Namespace + "/" + pod.Name}, nil
}

func refusal(pod *corev1.Pod, a eviction.Answer, gone int) rules.Result {
	return rules.Result{Undo: gone == 0 && a.Verdict == eviction.Never, Message: fmt.Sprintf("pod %s/%s may not be evicted yet: %s", pod.Namespace, pod.Name, a.Why)}
}

// undone is the result of an action that is called off. Evictions cannot be undone.
func (e preempt) undone(o *v1alpha1.RTAction, left []*corev1.Pod) rules.Result {
	if len(left) < len(o.Spec.Pods) {
		return rules.Result{Outcome: rules.Failed, Message: told(o, left)}
	}
	for _, pod := range left {
		if pod.DeletionTimestamp != nil {
			return rules.Result{Outcome: rules.Failed, Message: "pod " + pod.Namespace + "/" + pod.Name + " is ending already"}
		}
	}
	return rules.Result{Outcome: rules.RolledBack, Message: "nobody was evicted"}
}

// told describes which pods went and which did not.
func told(o *v1alpha1.RTAction, left []*corev1.Pod) string {
	stays := map[types.UID]bool{}
	for _, pod := range left {
		stays[pod.UID] = true
	}
	var went, stayed []string
	for _, p := range o.Spec.Pods {
		if name := p.Namespace + "/" + p.Name; stays[p.UID] {
			stayed = append(stayed, name)
		} else {
			went = append(went, name)
		}
	}
	text := "evicted " + strings.Join(went, ", ")
	if len(stayed) > 0 {
		text += "; not " + strings.Join(stayed, ", ")
	}
	return text
}
