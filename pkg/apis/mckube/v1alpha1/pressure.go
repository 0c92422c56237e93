package v1alpha1

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Stages of a node's answer to real-time pressure once no container suffers any longer, as the reason of condition
// RTPressure. While a container does, the reason is the source of the pressure.
const (
	// PressureEased: no container suffers; the controller gives nothing back yet.
	PressureEased = "Eased"
	// PressureRecovering: what was moved within the node goes back, step by step.
	PressureRecovering = "Recovering"
	// PressureLifting: the taint goes.
	PressureLifting = "Lifting"
	// PressureEnded is the reason of the condition once it is False.
	PressureEnded = "Ended"
)

// PressureCause is the cause of the actions that answer the pressure which began on an RTNode then.
func PressureCause(rtNode types.UID, begun time.Time) string {
	return fmt.Sprintf("pressure/%s/%d", rtNode, begun.Unix())
}

// LastResortCause is that of the one action for a pressure which may move again who was moved for it: the node is replaced, because
// nothing else helps.
func LastResortCause(rtNode types.UID, begun time.Time) string {
	return PressureCause(rtNode, begun) + lastResort
}

const lastResort = "/node"

// IsLastResort tells such a cause from others.
func IsLastResort(cause string) bool {
	return strings.HasPrefix(cause, "pressure/") && strings.HasSuffix(cause, lastResort)
}

// RecoveryCause is that of the actions by which what was moved goes back.
func RecoveryCause(rtNode types.UID, begun time.Time) string {
	return fmt.Sprintf("recovery/%s/%d", rtNode, begun.Unix())
}
