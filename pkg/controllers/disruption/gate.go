package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	disruptionevents "sigs.k8s.io/karpenter/pkg/controllers/disruption/events"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
)

// askAgain is how long a refusal is remembered: Karpenter's queue asks several times in a row, and then once a second.
const askAgain = time.Second

// Gate is the client of Karpenter's disruption queue. That queue deletes a node as soon as its replacement is initialised, whatever has
// changed since the command was computed, and a node that is being deleted cannot be kept. So a node that an action replaces is deleted
// only when all its pods may be evicted at that moment, the admission test finds cores for all its real-time containers on other nodes
// that have what else their pods ask for, no other action has one of them in hand, and while the action is not being undone. The queue takes what the gate says for a fault and
// tries again, until it gives up after ten minutes or the command is taken back; what was taken back it may be at still, and then
// nothing is deleted either. Nodes that standard methods close are deleted only while their real-time containers find such places, and while
// no action has such a node or a pod of it in hand and no container there is in escalation: minutes have passed since that was asked.
type Gate struct {
	client.Client
	clock   clock.Clock
	store   *rtstate.Store
	actions func() Actions
	queue   *disruption.Queue
	// places and recorder serve the queue as well.
	places   *placement.Simulator
	recorder events.Recorder

	// deleting is held while it is found out that a command still is, and its node is deleted.
	deleting sync.Mutex
	mutex    sync.Mutex
	said     map[string]refusal // by action
	let      map[string]bool    // actions whose nodes were let go
	held     map[string]refusal // by provider ID, nodes that were to be deleted and are kept for the sake of their pods
}

// refusal is why a node was not deleted: in words, and as a reason where it is for the sake of its pods. The zero value says that it may be.
type refusal struct {
	why, reason string
	never       bool
	at          time.Time
}

// NewGate makes one. It asks for the actions only when something is deleted: they need Karpenter's queue, which needs the gate.
func NewGate(c client.Client, clk clock.Clock, store *rtstate.Store, actions func() Actions) *Gate {
	return &Gate{Client: c, clock: clk, store: store, actions: actions, said: map[string]refusal{}, let: map[string]bool{}, held: map[string]refusal{}}
}

// NewQueue makes Karpenter's disruption queue with the gate as its client.
func (g *Gate) NewQueue(recorder events.Recorder, cluster *state.Cluster, provisioner *provisioning.Provisioner) *disruption.Queue {
	g.places = &placement.Simulator{Client: g.Client, Cluster: cluster, Recorder: recorder, Clock: g.clock}
	g.recorder = recorder
	g.queue = disruption.NewQueue(g, recorder, cluster, g.clock, provisioner)
	return g.queue
}

// Delete implements client.Client.
func (g *Gate) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok {
		return g.Client.Delete(ctx, o, options...)
	}
	action := g.replacing(claim)
	r, err := g.objects(ctx, claim, action)
	if err != nil {
		return err
	}
	g.holds(claim.Status.ProviderID, r)
	if r.why != "" {
		return errors.New(r.why)
	}
	g.deleting.Lock()
	defer g.deleting.Unlock()
	if !g.queue.HasAny(claim.Status.ProviderID) {
		return fmt.Errorf("the command for NodeClaim %s was taken back", claim.Name)
	}
	if action != nil {
		g.lets(action.Name)
	}
	return g.Client.Delete(ctx, o, options...)
}

// takeBack takes a command out of the queue as if it had failed, and lists whose it was. Its nodes are deleted by then, or will not be.
func (g *Gate) takeBack(command *disruption.Command) (ids []string) {
	g.deleting.Lock()
	defer g.deleting.Unlock()
	g.queue.Lock()
	defer g.queue.Unlock()
	for id, other := range g.queue.ProviderIDToCommand {
		if other == command {
			ids = append(ids, id)
			delete(g.queue.ProviderIDToCommand, id)
		}
	}
	return ids
}

// replacing is the action that replaces the node of a NodeClaim; nil for none.
func (g *Gate) replacing(claim *karpv1.NodeClaim) *v1alpha1.RTAction {
	for _, a := range g.actions().Running(rules.ReplaceNode) {
		if a.Status.Progress[progressClaim] == claimKey(claim) {
			return a
		}
	}
	return nil
}

// objects is why a node may not be deleted now.
func (g *Gate) objects(ctx context.Context, claim *karpv1.NodeClaim, action *v1alpha1.RTAction) (refusal, error) {
	switch {
	case action == nil:
		return g.uproots(ctx, claim)
	case action.Status.Phase != phaseRunning:
		return refusal{why: fmt.Sprintf("action %s is being undone", action.Name)}, nil
	}
	return g.refuses(ctx, action)
}

// busy is the objection to closing a node at this moment, whatever becomes of its pods: that of the choice, asked again.
func (g *Gate) busy(node, except string, escalated bool) (why, reason string) {
	if o := inHand(running(g.actions()), except).busy(g.store.Snapshot(), node, escalated); o != nil {
		return o.message, o.reason
	}
	return "", ""
}

// stays is the objection to closing a node for a standard method at this moment. Nodes that are repacked go together: what
// speaks against one of them speaks against all that are not being closed yet, and none has a container of criticality High.
func (g *Gate) stays(ctx context.Context, command *disruption.Command, claim *karpv1.NodeClaim) (why, reason string, err error) {
	if command.Method == nil || command.ConsolidationType() != repackType {
		why, reason = g.busy(claim.Status.NodeName, "", true)
		return why, reason, nil
	}
	for _, c := range command.Candidates {
		current := &karpv1.NodeClaim{}
		err := g.Get(ctx, client.ObjectKeyFromObject(c.NodeClaim), current)
		if client.IgnoreNotFound(err) != nil {
			return "", "", fmt.Errorf("reading NodeClaim %s: %w", c.NodeClaim.Name, err)
		}
		if err != nil || current.DeletionTimestamp != nil {
			continue // its pods are on their way
		}
		if why, reason = g.busy(c.Name(), "", true); why != "" {
			return why, reason, nil
		}
		if high := highOn(g.store.Snapshot(), c.Name()); high != "" {
			return fmt.Sprintf("%s of criticality High runs on node %s, and is not moved for a lower price", high, c.Name()), ReasonHigh, nil
		}
	}
	return "", "", nil
}

// uproots is what is under way on a node for which a standard method has found a command, or which of its real-time containers would find no
// place elsewhere any longer. Of one that is repaired it is not asked: nothing is left there to keep.
func (g *Gate) uproots(ctx context.Context, claim *karpv1.NodeClaim) (refusal, error) {
	g.queue.RLock()
	command := g.queue.ProviderIDToCommand[claim.Status.ProviderID]
	g.queue.RUnlock()
	if command == nil || command.Reason() == karpv1.DisruptionReasonUnhealthy {
		return refusal{}, nil
	}
	if last := g.keeps(claim.Status.ProviderID); last.why != "" && g.clock.Since(last.at) < askAgain {
		return last, nil
	}
	why, reason, err := g.stays(ctx, command, claim)
	if err != nil {
		return refusal{}, err
	}
	if why == "" {
		if why, err = g.crowdedOut(ctx, command.SourceNodeNames()...); why == "" {
			return refusal{}, err
		}
		reason = ReasonNoCore
	}
	for _, c := range command.Candidates {
		if c.NodeClaim.Name == claim.Name {
			g.recorder.Publish(disruptionevents.Unconsolidatable(c.Node, c.NodeClaim, reason+": "+why)...)
		}
	}
	return refusal{why: why, reason: reason, at: g.clock.Now()}, nil
}

// refuses is why the pods of an action's node may not be evicted now, that others have one in hand, or that they find no room. That budgets are
// raised there is why the node is replaced.
func (g *Gate) refuses(ctx context.Context, action *v1alpha1.RTAction) (refusal, error) {
	if last := g.lastOf(action.Name); last.why != "" && g.clock.Since(last.at) < askAgain {
		return last, nil
	}
	never, err := false, error(nil)
	why, reason := g.busy(action.Spec.Node, action.Name, false)
	if why == "" {
		why, never, err = kept(ctx, g.Client, g.clock, action.Spec.Node)
		reason = ReasonNotEvicted
	}
	if why == "" && err == nil {
		why = losesBudget(g.store.Snapshot(), action.Spec.Node)
		never = why != ""
	}
	if why == "" && err == nil {
		why, err = g.crowdedOut(ctx, action.Spec.Node)
		reason = ReasonNoCore
	}
	if err != nil {
		return refusal{}, err
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.said, action.Name)
	if why == "" {
		return refusal{}, nil
	}
	g.said[action.Name] = refusal{why, reason, never, g.clock.Now()}
	return g.said[action.Name], nil
}

// crowdedOut is which real-time containers of nodes that are closed together would find no place elsewhere now; empty: none.
func (g *Gate) crowdedOut(ctx context.Context, nodes ...string) (string, error) {
	snapshot := g.store.Snapshot()
	if !slices.ContainsFunc(nodes, func(name string) bool { return governed(snapshot, name) }) {
		return "", nil
	}
	v, err := g.vacancies(ctx, nodes)
	if err != nil {
		return "", err
	}
	list := homeless(snapshot, nodes, nil, v.room(ctx))
	if v.err != nil || len(list) == 0 {
		return "", v.err
	}
	return list[0].message, nil
}

// lastOf is what the gate last said to an action's command.
func (g *Gate) lastOf(action string) refusal {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.said[action]
}

// lets notes that the node of an action may be deleted now, before it is.
func (g *Gate) lets(action string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.let[action] = true
}

// hasLet tells whether this process may have deleted the node of an action.
func (g *Gate) hasLet(action string) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.let[action]
}

// holds notes why a node that was to be deleted is not, or that nothing of its pods keeps it.
func (g *Gate) holds(id string, r refusal) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.held[id] = r; r.reason == "" {
		delete(g.held, id)
	}
	g.measure()
}

// keeps is why a node was last kept.
func (g *Gate) keeps(id string) refusal {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.held[id]
}

// released are the nodes that were kept, and for which there is no command any longer.
func (g *Gate) released() []string {
	g.mutex.Lock()
	ids := slices.Collect(maps.Keys(g.held))
	g.mutex.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return g.queue.HasAny(id) })
}

// measure serves how many nodes are kept. The caller holds the mutex.
func (g *Gate) measure() {
	count := map[string]int{}
	for _, r := range g.held {
		count[r.reason]++
	}
	for _, reason := range keeps {
		metrics.DisruptionHeld.WithLabelValues(reason).Set(float64(count[reason]))
	}
}

// forget drops what is known of all actions but those, and of nodes for which Karpenter's queue has no command any longer.
func (g *Gate) forget(but map[string]bool) {
	over := g.released()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	maps.DeleteFunc(g.held, func(id string, _ refusal) bool { return slices.Contains(over, id) })
	g.measure()
	maps.DeleteFunc(g.said, func(name string, _ refusal) bool { return !but[name] })
	maps.DeleteFunc(g.let, func(name string, _ bool) bool { return !but[name] })
}

func claimKey(claim *karpv1.NodeClaim) string { return claim.Name + "/" + string(claim.UID) }
