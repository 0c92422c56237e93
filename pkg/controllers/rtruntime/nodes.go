package rtruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// nodes is the loop that says, node by node, what runs on which core.
type nodes struct {
	Dependencies
	agents   *agents
	memories *memories
	// specs are the versions that specs were written over.
	specs *superseded
}

func newNodes(d Dependencies) controller.Controller {
	return &nodes{Dependencies: d, agents: newAgents(), memories: newMemories(), specs: newSuperseded(generation)}
}

// Register adds the loop to a manager.
func (c *nodes) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("rtruntime.nodes").
		WatchesRawSource(onChange(c.Store, everyNode, changedNodes)).
		WatchesRawSource(c.Rearrange.source()).
		WatchesRawSource(c.leases(m.GetCache())).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: workers}).
		Complete(c)
}

func everyNode(s *state.Snapshot) []reconcile.Request {
	var out []reconcile.Request
	for n := range s.Nodes() {
		out = append(out, named(n.Name))
	}
	return out
}

func changedNodes(_ *state.Snapshot, c state.Change) []reconcile.Request {
	out := make([]reconcile.Request, len(c.Nodes))
	for i, name := range c.Nodes {
		out[i] = named(name)
	}
	return out
}

// Reconcile brings the RTNode of a node to what the cache says should run there.
func (c *nodes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if c.Store.Synced() != nil {
		return reconcile.Result{RequeueAfter: unsynced}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n, ok := c.Store.Snapshot().NodeView(req.Name)
	switch {
	case !ok || n.UID == "" || (n.RTNode == nil && !n.Stale && !n.Offered):
		c.forget(req.Name)
		return reconcile.Result{}, nil
	case n.Stale:
		c.forget(req.Name)
		return settled(reconcile.Result{RequeueAfter: soon}, c.remove(ctx, n))
	}
	if err := c.release(ctx, n); err != nil {
		return settled(reconcile.Result{}, err)
	}
	wait, err := c.keep(ctx, n)
	return settled(reconcile.Result{RequeueAfter: wait}, err)
}

// keep writes what is new and reports it. It returns after what time to look again.
func (c *nodes) keep(ctx context.Context, n *state.NodeView) (time.Duration, error) {
	known := c.memories.of(n)
	d, asked, err := c.settle(ctx, n, known)
	if err != nil {
		return 0, err
	}
	c.report(ctx, n, known, d, asked)
	c.memories.put(n, known.after(n, d, asked))
	if n.RTNode == nil {
		c.measure(n, d, false)
		return d.Wake, nil
	}
	alive, changed, wait, err := c.watchAgent(ctx, n.RTNode)
	if err != nil {
		return 0, err
	}
	if changed {
		c.publish(agentEvents(n, alive)...)
	}
	c.measure(n, d, alive.Status == metav1.ConditionTrue)
	return earliest(wait, d.Wake), nil
}

// settle decides what runs on the node, and has it stored.
func (c *nodes) settle(ctx context.Context, n *state.NodeView, known memory) (nodeDecision, moves, error) {
	writing := c.Rearrange.writes(n.Name)
	writing.Lock()
	defer writing.Unlock()
	asked := c.Rearrange.on(n.Name)
	d := decide(n, known.pressure, c.Clock.Now(), c.Options.Granularity, asked)
	return d, asked, c.write(ctx, n, d.Spec)
}

// write creates the RTNode or updates its spec, if that is not what it says. The update
// fails when another writer has written another spec meanwhile, so of two controllers with different pictures the API
// server refuses one.
func (c *nodes) write(ctx context.Context, n *state.NodeView, spec v1alpha1.RTNodeSpec) error {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID, Controller: ptr.To(true)}
	if n.RTNode == nil {
		r := &v1alpha1.RTNode{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: spec,
		}
		if err := c.Client.Create(ctx, r, client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("creating RTNode %s: %w", n.Name, err)
		}
		return nil
	}
	if apiequality.Semantic.DeepEqual(n.RTNode.Spec, spec) {
		return nil
	}
	if err := c.specs.check(n.RTNode); err != nil {
		return fmt.Errorf("updating RTNode %s: %w", n.Name, err)
	}
	r := n.RTNode.DeepCopy()
	r.Spec = spec
	if len(r.OwnerReferences) == 0 { // a user made it; without an owner it would stay when its Node is deleted
		r.OwnerReferences = []metav1.OwnerReference{owner}
	}
	if err := c.replace(ctx, r); err != nil {
		return fmt.Errorf("updating RTNode %s: %w", n.Name, err)
	}
	c.specs.wrote(n.RTNode, r)
	return nil
}

// replace writes the spec of an RTNode over the one that was read, and over no other. What its agent has reported meanwhile is no hindrance: it does so each
// time that it has applied something.
func (c *nodes) replace(ctx context.Context, r *v1alpha1.RTNode) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": r.UID},
		{"op": "test", "path": "/metadata/generation", "value": r.Generation},
		{"op": "add", "path": "/spec", "value": r.Spec},
		{"op": "add", "path": "/metadata/ownerReferences", "value": r.OwnerReferences},
	})
	if err != nil {
		return err
	}
	err = c.Client.Patch(ctx, r, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldManager))
	var refused *apierrors.StatusError
	if errors.As(err, &refused) && apierrors.IsInvalid(err) && (refused.ErrStatus.Details == nil || refused.ErrStatus.Details.Kind == "") { // a test has failed
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.Group, Resource: "rtnodes"}, r.Name, err)
	}
	return err
}

// remove deletes an RTNode that belongs to an earlier Node of the name, that one and no other.
func (c *nodes) remove(ctx context.Context, n *state.NodeView) error {
	r := &v1alpha1.RTNode{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: n.Name}, r); err != nil {
		return fmt.Errorf("reading RTNode %s: %w", n.Name, err)
	}
	if ownedBy(r, n) {
		return nil
	}
	if err := c.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); err != nil {
		return fmt.Errorf("deleting stale RTNode %s: %w", n.Name, err)
	}
	return nil
}

func ownedBy(r *v1alpha1.RTNode, n *state.NodeView) bool {
	for _, owner := range r.OwnerReferences {
		if owner.UID == n.UID {
			return true
		}
	}
	return false
}

// forget drops what was remembered of a node that is gone, and its series.
func (c *nodes) forget(name string) {
	if known, ok := c.memories.drop(name); ok {
		c.agents.forget(known.rtNode)
	}
	c.specs.forget(types.NamespacedName{Name: name})
	metrics.Nodes.Delete(name)
}
