package provisioning

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	knowledge "github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Event reasons.
const (
	// ReasonNotCalibrated: a node was registered although its agent has not measured how exactly it enforces budgets.
	ReasonNotCalibrated = "AgentNotCalibrated"
)

// recheck is how often it is asked whether an agent has measured.
const recheck = time.Second

// CalibrationDependencies are the collaborators of the hook. All are required.
type CalibrationDependencies struct {
	Clock    clock.PassiveClock
	Client   client.Client
	Recorder karpenterevents.Recorder
	// Provider knows which machines have real-time cores.
	Provider cloudprovider.CloudProvider
	Store    *state.Store
	// Timeout is how long a node may be held back; 0: none is.
	Timeout time.Duration
}

// NewCalibration makes a hook that holds the registration of a node back until its agent has published the granularity
// of its budgets, so that no pod lands before it is known what its budget will be charged there. Nodes of machines
// without real-time cores are not held back. One whose agent says nothing in time is registered, as an ordinary
// node, and an Event says so.
func NewCalibration(d CalibrationDependencies) cloudprovider.NodeLifecycleHook {
	return &calibration{d}
}

type calibration struct{ CalibrationDependencies }

// Name implements cloudprovider.NodeLifecycleHook: it is in the message of condition Registered while a node waits.
func (c *calibration) Name() string { return "rt-calibration" }

// Registered implements cloudprovider.NodeLifecycleHook.
func (c *calibration) Registered(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.NodeLifecycleHookResult, error) {
	if c.Timeout == 0 {
		return cloudprovider.NodeLifecycleHookResult{}, nil
	}
	node, err := nodeclaimutils.NodeForNodeClaim(ctx, c.Client, claim)
	if err != nil {
		return cloudprovider.NodeLifecycleHookResult{}, fmt.Errorf("finding the node of NodeClaim %s: %w", claim.Name, err)
	}
	left := c.left(claim, node)
	realtime, err := c.realtime(ctx, claim)
	switch {
	case err != nil && left > 0:
		return cloudprovider.NodeLifecycleHookResult{}, err
	case err == nil && !realtime || calibrated(c.Store.Snapshot(), node.Name, node.UID):
		return cloudprovider.NodeLifecycleHookResult{}, nil
	case left > 0:
		return cloudprovider.NodeLifecycleHookResult{RequeueAfter: min(left, recheck)}, nil
	}
	c.Recorder.Publish(c.notCalibrated(claim, node, err))
	return cloudprovider.NodeLifecycleHookResult{}, nil
}

// left is for how long the node may still be held back, from when both it and its NodeClaim were there.
func (c *calibration) left(claim *karpv1.NodeClaim, node *corev1.Node) time.Duration {
	since := node.CreationTimestamp.Time
	if claim.CreationTimestamp.After(since) {
		since = claim.CreationTimestamp.Time
	}
	return c.Timeout - c.Clock.Since(since)
}

// realtime tells whether the machine of a NodeClaim has real-time cores. One whose NodePool or instance type is gone has
// none that anybody knows of.
func (c *calibration) realtime(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	pool := &karpv1.NodePool{}
	err := c.Client.Get(ctx, types.NamespacedName{Name: claim.Labels[karpv1.NodePoolLabelKey]}, pool)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the NodePool of NodeClaim %s: %w", claim.Name, err)
	}
	list, err := c.Provider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return false, fmt.Errorf("asking for the instance types of NodePool %s: %w", pool.Name, err)
	}
	at := slices.IndexFunc(list, func(it *cloudprovider.InstanceType) bool {
		return it.Name == claim.Labels[corev1.LabelInstanceTypeStable]
	})
	if at < 0 {
		return false, nil
	}
	cores, err := knowledge.CoresOf(list[at])
	return len(cores) > 0, err
}

// calibrated tells whether the agent of a node, and not of an earlier one of its name, has published cores and the
// granularity that it has measured.
func calibrated(s *state.Snapshot, name string, uid types.UID) bool {
	n, ok := s.NodeView(name)
	return ok && n.UID == uid && n.Offered && n.RTNode != nil && n.RTNode.Status.Backend != "" // published with the granularity
}

func (c *calibration) notCalibrated(claim *karpv1.NodeClaim, node *corev1.Node, err error) karpenterevents.Event {
	message := fmt.Sprintf("Registered node %s as an ordinary one: within %s its agent has not said how exactly it enforces budgets, so no real-time pod finds a core there until it does", node.Name, c.Timeout)
	if err != nil {
		message = fmt.Sprintf("Registered node %s: within %s it was not known whether it has real-time cores: %v", node.Name, c.Timeout, err)
	}
	return karpenterevents.Event{
		InvolvedObject: claim, Type: corev1.EventTypeWarning, Reason: ReasonNotCalibrated, Message: message, DedupeValues: []string{string(claim.UID)},
	}
}
