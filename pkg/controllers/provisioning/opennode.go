package provisioning

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	karpenterstate "sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/metrics"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// What the executor keeps from step to step.
const (
	// progressOpened is set once the NodeClaim was seen, or was created.
	progressOpened = "opened"
	// progressGone is since when it is gone, in Unix milliseconds.
	progressGone = "gone"
)

// createdReason is the value of label reason of karpenter_nodeclaims_created_total for nodes that actions open.
const createdReason = "rt_action"

// listening is how long the provider's words are waited for after the NodeClaim has gone: an Event may come later than
// what it is about.
const listening = 5 * time.Second

// Dependencies are the collaborators of the executor. All are required.
type Dependencies struct {
	Clock clock.PassiveClock
	// Client reads from a cache and writes, Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	// Provider offers the machines that plans are made with, Provisioner makes schedulers over them, and Cluster is what
	// both see of nodes.
	Provider    cloudprovider.CloudProvider
	Provisioner *provisioning.Provisioner
	Cluster     *karpenterstate.Cluster
	Store       *state.Store
}

// NewOpenNode makes the executor of actions of kind OpenNode. A node is opened by creating one NodeClaim, whose name
// follows from the action: however often the step is repeated, and by whomever, there is one at most. Everything else
// is Karpenter's.
func NewOpenNode(d Dependencies) orchestration.Executor { return &opener{Dependencies: d} }

type opener struct {
	Dependencies
	// deciding is held from when it is known what nodes there are until what is decided on that counts as one. The queue takes steps of several
	// actions at a time, and two that see the same room under a NodePool's limits would take it twice.
	deciding sync.Mutex
}

// Step implements orchestration.Executor.
func (o *opener) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if err := o.Store.Synced(); err != nil {
		return rules.Result{}, fmt.Errorf("opening a node: %w", err)
	}
	claim, err := o.claimOf(ctx, task.Object)
	switch {
	case err != nil:
		return rules.Result{}, err
	case task.Undoing():
		return o.undo(ctx, task.Object, claim)
	case claim != nil && claim.Annotations[v1alpha1.AnnotationAction] != task.Object.Name:
		return rules.Result{}, fmt.Errorf("reading NodeClaim %s: it has the name and not annotation %s=%s of the one that would be opened; delete it",
			claim.Name, v1alpha1.AnnotationAction, task.Object.Name)
	case claim != nil:
		task.Progress[progressOpened] = claim.Name
		delete(task.Progress, progressGone)
		return o.follow(ctx, claim)
	}
	words, err := o.words(ctx, claimName(task.Object))
	switch {
	case err != nil:
		return rules.Result{}, err
	case words != "" || task.Progress[progressOpened] != "":
		return o.vanished(task, words), nil
	}
	return o.open(ctx, task)
}

// claimName is the name of the NodeClaim of an action.
func claimName(o *v1alpha1.RTAction) string {
	sum := sha256.Sum256([]byte(o.UID))
	return o.Name + "-" + hex.EncodeToString(sum[:3])
}

// claimOf is the NodeClaim of an action as the API server has it; nil when there is none.
func (o *opener) claimOf(ctx context.Context, action *v1alpha1.RTAction) (*karpv1.NodeClaim, error) {
	claim := &karpv1.NodeClaim{}
	err := o.Reader.Get(ctx, types.NamespacedName{Name: claimName(action)}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading NodeClaim %s: %w", claimName(action), err)
	}
	return claim, nil
}

// open decides on a node and asks for it.
func (o *opener) open(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if !o.deciding.TryLock() {
		return rules.Result{Message: "waits until it is decided on another node"}, nil
	}
	defer o.deciding.Unlock()
	if !o.Cluster.Synced(ctx) { // nor is it while a node that was asked for has no machine yet
		return rules.Result{Message: "waits until what is known of nodes is complete"}, nil
	}
	p, refusal, err := o.plan(ctx, task.Object.Spec)
	switch {
	case err != nil:
		return rules.Result{}, err
	case refusal != "":
		return rules.Result{Undo: true, Message: refusal}, nil
	}
	claim := p.claim.ToNodeClaim()
	claim.Name, claim.GenerateName = claimName(task.Object), ""
	claim.Annotations = lo.Assign(claim.Annotations, map[string]string{v1alpha1.AnnotationAction: task.Object.Name}) // not what a NodePool's template says
	if refusal, err := o.stillAllowed(ctx, p); refusal != "" || err != nil {
		return rules.Result{Undo: refusal != "", Message: refusal}, err
	}
	if err := o.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return rules.Result{}, fmt.Errorf("creating NodeClaim %s: %w", claim.Name, err)
	}
	metrics.NodeClaimsCreatedTotal.Inc(map[string]string{
		metrics.ReasonLabel: createdReason, metrics.NodePoolLabel: p.pool.Name,
		metrics.MinValuesRelaxedLabel: cmp.Or(claim.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey], "false"),
	})
	o.Cluster.UpdateNodeClaim(claim) // whoever plans before the watch shows it counts it
	task.Progress[progressOpened] = claim.Name
	return rules.Result{Message: fmt.Sprintf("asked for NodeClaim %s: %s", claim.Name, p.words())}, nil
}

// stillAllowed asks the API server whether the NodePool that was planned with still is, and leaves room under its limits.
func (o *opener) stillAllowed(ctx context.Context, p plan) (refusal string, err error) {
	pool := &karpv1.NodePool{}
	err = o.Reader.Get(ctx, types.NamespacedName{Name: p.pool.Name}, pool)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (pool.UID != p.pool.UID || !pool.DeletionTimestamp.IsZero()):
		return fmt.Sprintf("NodePool %s was deleted", p.pool.Name), nil
	case err != nil:
		return "", fmt.Errorf("reading NodePool %s: %w", p.pool.Name, err)
	}
	if err := pool.Spec.Limits.ExceededBy(o.Cluster.NodePoolResourcesFor(pool.Name)); err != nil {
		return fmt.Sprintf("NodePool %s: %v", pool.Name, err), nil
	}
	return "", nil
}
