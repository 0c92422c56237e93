package provisioning

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/opened"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// follow says how far the node of a NodeClaim has come.
func (o *opener) follow(ctx context.Context, claim *karpv1.NodeClaim) (rules.Result, error) {
	if !claim.DeletionTimestamp.IsZero() {
		words, err := o.words(ctx, claim.Name)
		return rules.Result{Undo: err == nil, Message: fmt.Sprintf("NodeClaim %s is being deleted%s", claim.Name, because(words, lastWords(claim)))}, err
	}
	if gone, err := o.poolGone(ctx, claim); err != nil || gone {
		return rules.Result{Undo: gone, Message: fmt.Sprintf("NodePool %s was deleted", claim.Labels[karpv1.NodePoolLabelKey])}, err
	}
	for _, step := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		if c := claim.StatusConditions().Get(step); !c.IsTrue() {
			return rules.Result{Message: fmt.Sprintf("NodeClaim %s is not %s yet%s", claim.Name, strings.ToLower(step), because(wordsOf(c)))}, nil
		}
	}
	n, ok := o.Store.Snapshot().NodeView(claim.Status.NodeName)
	switch {
	case !ok || !n.Offered:
		return rules.Result{Message: fmt.Sprintf("node %s offers no real-time cores yet", claim.Status.NodeName)}, nil
	case !calibrated(o.Store.Snapshot(), n.Name, n.UID):
		return rules.Result{Message: fmt.Sprintf("the agent of node %s has not measured yet", n.Name)}, nil
	case n.Shut() != "":
		return rules.Result{Message: fmt.Sprintf("node %s takes nobody yet: %s", n.Name, n.Shut())}, nil
	case n.Agent != state.AgentAlive: // or nobody would be moved there
		return rules.Result{Message: fmt.Sprintf("node %s takes nobody yet: its agent has not been heard of", n.Name)}, nil
	}
	return rules.Result{Outcome: rules.Succeeded, Message: fmt.Sprintf("node %s is ready: %s", n.Name, machineOf(claim))}, nil
}

// poolGone tells whether the NodePool that a NodeClaim was opened in is there no longer.
func (o *opener) poolGone(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	pool := &karpv1.NodePool{}
	err := o.Reader.Get(ctx, types.NamespacedName{Name: claim.Labels[karpv1.NodePoolLabelKey]}, pool)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the NodePool of NodeClaim %s: %w", claim.Name, err)
	}
	return apierrors.IsNotFound(err) || !pool.DeletionTimestamp.IsZero() || !owned(claim, pool.UID), nil
}

func owned(claim *karpv1.NodeClaim, uid types.UID) bool {
	for _, owner := range claim.OwnerReferences {
		if owner.UID == uid {
			return true
		}
	}
	return false
}

// vanished waits a little for the provider's words about a NodeClaim that is gone.
func (o *opener) vanished(task orchestration.Task, words string) rules.Result {
	name, now := claimName(task.Object), o.Clock.Now()
	if words != "" {
		return rules.Result{Undo: true, Message: fmt.Sprintf("NodeClaim %s came to nothing%s", name, because(words))}
	}
	since, err := strconv.ParseInt(task.Progress[progressGone], 10, 64)
	switch {
	case err != nil:
		task.Progress[progressGone] = strconv.FormatInt(now.UnixMilli(), 10)
	case now.Sub(time.UnixMilli(since)) >= listening:
		return rules.Result{Undo: true, Message: fmt.Sprintf("NodeClaim %s is gone, and nobody has said why", name)}
	}
	return rules.Result{Message: fmt.Sprintf("NodeClaim %s is gone", name)}
}

// words are those of the Events by which Karpenter says that the provider has refused a NodeClaim. They outlive it.
func (o *opener) words(ctx context.Context, claim string) (string, error) {
	list := &corev1.EventList{}
	selector := client.MatchingFieldsSelector{Selector: fields.SelectorFromSet(fields.Set{"involvedObject.kind": "NodeClaim", "involvedObject.name": claim})}
	if err := o.Reader.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), selector); err != nil {
		return "", fmt.Errorf("listing the Events of NodeClaim %s: %w", claim, err)
	}
	for _, e := range list.Items {
		if e.Reason == karpenterevents.InsufficientCapacityError || e.Reason == karpenterevents.NodeClassNotReady {
			return strings.TrimPrefix(e.Message, fmt.Sprintf("NodeClaim %s event: ", claim)), nil
		}
	}
	return "", nil
}

// lastWords are why a NodeClaim has not come further.
func lastWords(claim *karpv1.NodeClaim) string {
	for _, step := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		if c := claim.StatusConditions().Get(step); !c.IsTrue() {
			return wordsOf(c)
		}
	}
	return ""
}

func wordsOf(c *status.Condition) string {
	if c == nil || c.Reason == "AwaitingReconciliation" {
		return ""
	}
	return strings.Trim(c.Reason+": "+c.Message, ": ")
}

// because is the first reason that there is.
func because(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return ": " + r
		}
	}
	return ""
}

func machineOf(claim *karpv1.NodeClaim) string {
	out := fmt.Sprintf("%s in zone %s, %s", claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone], claim.Labels[karpv1.CapacityTypeLabelKey])
	if price := claim.Annotations[v1alpha1.AnnotationPricePerHour]; price != "" {
		out += ", $" + price + " per hour"
	}
	return out
}

// undo deletes the NodeClaim, unless real-time work runs on its node by now, which would have to go again, or other pods do.
func (o *opener) undo(ctx context.Context, action *v1alpha1.RTAction, claim *karpv1.NodeClaim) (rules.Result, error) {
	switch {
	case claim == nil:
		return rules.Result{Outcome: rules.RolledBack, Message: "no node is opened"}, nil
	case !claim.DeletionTimestamp.IsZero():
		return rules.Result{Outcome: rules.RolledBack, Message: fmt.Sprintf("NodeClaim %s is being deleted", claim.Name)}, nil
	case claim.Annotations[v1alpha1.AnnotationAction] != action.Name: // it was disowned, and nobody heard of it
		return rules.Result{Outcome: rules.RolledBack, Message: stays(claim)}, nil
	case inUse(o.Store.Snapshot(), claim):
		return rules.Result{Outcome: rules.Succeeded, Message: fmt.Sprintf("node %s stays: real-time containers have cores there", claim.Status.NodeName)}, nil
	}
	left, err := opened.Discard(ctx, o.Client, o.Reader, claim)
	switch {
	case err != nil:
		return rules.Result{}, err
	case left:
		return rules.Result{Outcome: rules.RolledBack, Message: stays(claim)}, nil
	}
	return rules.Result{Outcome: rules.RolledBack, Message: fmt.Sprintf("NodeClaim %s is deleted", claim.Name)}, nil
}

func stays(claim *karpv1.NodeClaim) string {
	return fmt.Sprintf("NodeClaim %s stays, as that of a node like any other: pods run there", claim.Name)
}

// inUse tells whether real-time containers have cores on the node of a NodeClaim.
func inUse(s *state.Snapshot, claim *karpv1.NodeClaim) bool {
	n, ok := s.NodeView(claim.Status.NodeName)
	return ok && claim.Status.NodeName != "" && len(n.Servers) > 0
}
