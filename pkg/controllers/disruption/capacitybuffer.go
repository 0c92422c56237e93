package disruption

import (
	"context"
	"fmt"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// bufferCounted is within how long Karpenter plans for CapacityBuffers again: their loop asks for that every 30 s
// (controllers/capacitybuffer), and what it asks while the cluster's state is not complete is lost.
const bufferCounted = 75 * time.Second

// bufferObjection is the objection to closing a node as empty that may have been opened for the pods of a CapacityBuffer; nil for none. Karpenter counts
// these pods on a node in the first plan after the node has come, and until then takes it for empty.
func (m *filtered) bufferObjection(ctx context.Context, c *disruption.Candidate) *objection {
	if m.Reason() != karpv1.DisruptionReasonEmpty || !options.FromContext(ctx).FeatureGates.CapacityBuffer {
		return nil
	}
	came := c.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeInitialized)
	if came == nil || m.Clock.Since(came.LastTransitionTime.Time) >= bufferCounted {
		return nil
	}
	return &objection{c.Name(), ReasonBuffer, fmt.Sprintf("NodeClaim %s may be for a CapacityBuffer, whose pods Karpenter has not counted there yet", c.NodeClaim.Name)}
}
