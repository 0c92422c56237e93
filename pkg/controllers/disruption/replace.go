package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const phaseRunning = v1alpha1.ActionPhase(rules.Running)

// What the progress of a ReplaceNode action keeps.
const (
	// progressNodeUID and progressClaim tell the node, and its NodeClaim as name/UID, from later ones of the names.
	progressNodeUID = "nodeUID"
	progressClaim   = "nodeClaim"
	// progressTriggered is when the action last fired the loop's trigger.
	progressTriggered = "rung"
	// progressReplacements are the NodeClaims of its replacements, and progressSaid what they last waited for.
	progressReplacements = "replacements"
	progressSaid         = "waitsFor"
	// progressKept is why the node is not closed though they are ready. It goes when that does, and is nowhere once the action is over.
	progressKept = "kept"
	// progressOthers is that another client has deleted the NodeClaim.
	progressOthers = "byOthers"
)

// triggerInterval is how long slow searches are left alone before they are interrupted again for a node that could not be
// replaced yet. What it waits for may never come, and consolidation must still get its turn then.
const triggerInterval = time.Minute

// beginning is how long the loop is given to begin a command, however long its action has waited for its turn.
const beginning = 15 * time.Second

// lastWord is how long before the time of an action is over it ends by itself, to say what kept it: when the queue ends it only the time is told.
const lastWord = 10 * time.Second

// replace does actions of kind ReplaceNode. It watches: the loop computes the command, and Karpenter's queue carries
// it out.
type replace struct{ *Controller }

// Executor does actions of kind ReplaceNode.
func (c *Controller) Executor() orchestration.Executor { return replace{c} }

// Step implements orchestration.Executor.
func (r replace) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if task.Progress[progressNodeUID] == "" {
		return r.identify(ctx, task)
	}
	t, err := r.look(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	result, err := r.next(ctx, task, t)
	if result.Outcome != "" {
		delete(task.Progress, progressKept)
	}
	return result, err
}

// next is the step that the state of the node asks for.
func (r replace) next(ctx context.Context, task orchestration.Task, t target) (rules.Result, error) {
	switch {
	case t.claim == nil && t.node == nil:
		r.notice(task, t)
		return rules.Result{Outcome: rules.Succeeded, Message: fmt.Sprintf("Node %s is closed%s", t.name, byOthers(task))}, nil
	case t.claim == nil && t.node.DeletionTimestamp == nil:
		return r.abandon(ctx, task, t)
	case t.claim == nil || t.claim.DeletionTimestamp != nil:
		r.notice(task, t)
		return r.leave(ctx, task, t)
	case task.Undoing():
		return r.undo(ctx, task, t)
	}
	return r.follow(ctx, task, t)
}

// identify records which node is meant, before anything is done to it: the loop takes up no action without that.
func (r replace) identify(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if task.Undoing() {
		return rules.Result{Outcome: rules.RolledBack, Message: "nothing was begun"}, nil
	}
	name := task.Object.Spec.Node
	node := &corev1.Node{}
	if err := r.Reader.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return rules.Result{Undo: true, Message: fmt.Sprintf("Node %s is gone", name)}, nil
		}
		return rules.Result{}, fmt.Errorf("reading node %s: %w", name, err)
	}
	if !r.Cluster.HasSynced() {
		return rules.Result{Message: "what Karpenter knows of the cluster is not complete yet"}, nil
	}
	known := nodeNamed(r.Cluster, name)
	if known == nil || known.Node == nil || known.NodeClaim == nil || known.Node.UID != node.UID {
		return rules.Result{Undo: true, Message: fmt.Sprintf("Karpenter does not manage node %s", name)}, nil
	}
	task.Progress[progressNodeUID] = string(node.UID)
	task.Progress[progressClaim] = claimKey(known.NodeClaim)
	return rules.Result{Message: "Karpenter is asked for a replacement"}, nil
}

// target is the node of an action as the API server has it; what is gone, or another by now, is nil.
type target struct {
	name  string
	node  *corev1.Node
	claim *karpv1.NodeClaim
	// command that Karpenter's queue has for it; nil for none.
	command *disruption.Command
	// found is what the loop knows of the action, and started whether it had begun a command before the queue was asked.
	found   note
	started bool
}

// look finds out how the node is. It asks the loop first, then the queue: a command that was begun and that the queue does
// not have was carried out or given up. If it was carried out, that shows in what is read after that. It reads the NodeClaim
// before the node, which goes first: a node without NodeClaim that is there after that is not being closed.
func (r replace) look(ctx context.Context, task orchestration.Task) (target, error) {
	name, uid, _ := strings.Cut(task.Progress[progressClaim], "/")
	t := target{name: task.Object.Spec.Node}
	t.found, t.started = r.desk.read(task.Object.Name)
	t.command = commandFor(r.Queue, func(c *disruption.Candidate) bool { return c.NodeClaim.Name == name })
	node, claim := &corev1.Node{}, &karpv1.NodeClaim{}
	ok, err := r.read(ctx, name, types.UID(uid), claim)
	if err != nil {
		return t, err
	}
	if ok {
		t.claim = claim
	}
	if ok, err = r.read(ctx, t.name, types.UID(task.Progress[progressNodeUID]), node); err != nil {
		return t, err
	}
	if ok {
		t.node = node
	}
	return t, nil
}

func (r replace) read(ctx context.Context, name string, uid types.UID, into client.Object) (bool, error) {
	err := r.Reader.Get(ctx, types.NamespacedName{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return into.GetUID() == uid, nil
}

// commandFor is the command of Karpenter's queue that closes a node; nil for none.
func commandFor(q *disruption.Queue, is func(*disruption.Candidate) bool) *disruption.Command {
	q.RLock()
	defer q.RUnlock()
	for _, command := range q.ProviderIDToCommand {
		if slices.ContainsFunc(command.Candidates, is) {
			return command
		}
	}
	return nil
}

// leave waits for the real-time containers to be elsewhere. Karpenter counts the node's place in the NodePool's budget from
// here on. The node itself is free for other actions: a pod that is evicted from it may become a migration, which would wait
// for the node. There is no way back: when the action is withdrawn, and a policy says that a pod may not go, there is nothing
// to wait for. What refuses an eviction only now, a budget or a busy API server, is asked again for as long as there is time.
func (r replace) leave(ctx context.Context, task orchestration.Task, t target) (rules.Result, error) {
	result := rules.Result{Spent: append(r.spent(t), rules.Key{Resource: rules.Node, Name: t.name})}
	still := r.containers(t)
	if len(still) == 0 {
		result.Outcome, result.Message = rules.Succeeded, fmt.Sprintf("Node %s is being closed and has no real-time container any longer%s", t.name, byOthers(task))
		return result, nil
	}
	result.Message = fmt.Sprintf("node %s is being closed%s; there are still %s", t.name, byOthers(task), few(still))
	why, never, err := kept(ctx, r.Client, r.Clock, t.name)
	if why != "" {
		result.Message += "; " + why
		if deadline, _ := task.Action.Deadline(); task.Undoing() && (never || deadline.Sub(r.Clock.Now()) < lastWord) {
			result.Outcome, result.Message = rules.Failed, task.Action.Message+"; but "+result.Message
		}
	}
	return result, err
}

// containers that run on the node as real-time servers.
func (r replace) containers(t target) (out []string) {
	n, ok := r.Store.Snapshot().NodeView(t.name)
	if !ok || t.node == nil || n.UID != t.node.UID {
		return nil
	}
	for _, v := range n.Servers {
		if v.Running && v.McKube != nil {
			out = append(out, containerOf(v))
		}
	}
	return out
}

func (r replace) spent(t target) []rules.Key {
	if t.claim == nil || t.claim.Labels[karpv1.NodePoolLabelKey] == "" {
		return nil
	}
	return []rules.Key{{Resource: rules.PoolBudget, Name: t.claim.Labels[karpv1.NodePoolLabelKey]}}
}

// follow asks what came of the command, or has the loop compute one.
func (r replace) follow(ctx context.Context, task orchestration.Task, t target) (rules.Result, error) {
	if t.command != nil {
		message, err := r.readiness(ctx, task, t.command)
		result := rules.Result{Spent: r.spent(t), Message: message}
		last := r.Gate.lastOf(task.Object.Name)
		if last.why == "" {
			delete(task.Progress, progressKept)
			return result, err
		}
		task.Progress[progressKept] = last.why
		result.Message, result.Undo = last.why, last.never
		return result, err
	}
	switch {
	case t.started:
		message, err := r.failed(ctx, task)
		return rules.Result{Undo: err == nil, Message: message}, err
	case t.found.impossible:
		return rules.Result{Undo: true, Message: t.found.message}, nil
	case r.tooLate(task):
		return rules.Result{Undo: true, Message: "it could not begin in time; it waited for: " + t.found.message}, nil
	}
	r.trigger(task)
	return rules.Result{Message: t.found.message}, nil
}

// tooLate tells whether no command has begun by the time by which the action was to begin, or soon after it was its turn. The
// controller that asked for the action would rather try something else than wait for a budget that may never open. A command
// that an earlier process had begun is begun again.
func (r replace) tooLate(task orchestration.Task) bool {
	now, a := r.Clock.Now(), task.Action
	return !a.StartBy.IsZero() && task.Progress[progressReplacements] == "" && now.After(a.StartBy) && now.After(a.Entered.Add(beginning))
}

// failed says why Karpenter's queue has given a command up. It tells what the replacement waited for when it was last seen,
// and what Karpenter has said of it in Events, which are there longer than the replacement.
func (r replace) failed(ctx context.Context, task orchestration.Task) (string, error) {
	if why := task.Progress[progressKept]; why != "" {
		return "Karpenter has given the command up: " + why, nil
	}
	message := "Karpenter has given the replacement up: it was refused by the provider or did not get ready in time"
	if said := task.Progress[progressSaid]; said != "" {
		message += "; last seen: " + said
	}
	for _, claim := range strings.Fields(task.Progress[progressReplacements]) {
		list := &corev1.EventList{}
		if err := r.Reader.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"involvedObject.kind": "NodeClaim", "involvedObject.name": claim, "type": corev1.EventTypeWarning}); err != nil {
			return "", fmt.Errorf("listing the Events of NodeClaim %s: %w", claim, err)
		}
		for _, e := range list.Items {
			message += "; " + e.Reason + ": " + e.Message
		}
	}
	return message, nil
}

// trigger fires the loop's trigger at first, and now and then.
func (r replace) trigger(task orchestration.Task) {
	now := r.Clock.Now()
	if last, err := time.Parse(time.RFC3339, task.Progress[progressTriggered]); err == nil && now.Sub(last) < triggerInterval {
		return
	}
	task.Progress[progressTriggered] = now.UTC().Format(time.RFC3339)
	r.Trigger.Fire()
}

// readiness says how far the replacements of a command are, and notes it.
func (r replace) readiness(ctx context.Context, task orchestration.Task, command *disruption.Command) (string, error) {
	if command.Reason() != Reason {
		return fmt.Sprintf("the node is being closed for reason %s already", command.Reason()), nil
	}
	var names, waits []string
	for _, replacement := range command.Replacements {
		claim := &karpv1.NodeClaim{}
		err := r.Client.Get(ctx, types.NamespacedName{Name: replacement.Name}, claim)
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("NodeClaim %s is not there", replacement.Name), nil
		}
		if err != nil {
			return "", fmt.Errorf("reading NodeClaim %s: %w", replacement.Name, err)
		}
		names = append(names, claim.Name)
		if text := unready(claim); text != "" {
			waits = append(waits, text)
		}
	}
	task.Progress[progressReplacements], task.Progress[progressSaid] = strings.Join(names, " "), few(waits)
	if len(waits) == 0 {
		return "nothing is left to wait for", nil
	}
	return few(waits), nil
}

// unready is why a NodeClaim does not serve yet; empty when it does.
func unready(claim *karpv1.NodeClaim) string {
	for _, kind := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		condition := claim.StatusConditions().Get(kind)
		if condition.IsTrue() {
			continue
		}
		text := fmt.Sprintf("NodeClaim %s is not %s", claim.Name, kind)
		if condition != nil && condition.Message != "" {
			text += ": " + condition.Message
		}
		return text
	}
	return ""
}
