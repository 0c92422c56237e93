package rtruntime

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons of the condition AgentAlive.
const (
	reasonHeartbeat = "Heartbeat"
	reasonSilent    = "AgentSilent"
	reasonUnseen    = "AgentNotSeen"
)

// agents remembers when the heartbeat of each RTNode last changed, by the controller's own clock: what
// the agent's clock says, or that it jumped, does not matter. After a restart every agent is as good as
// just seen.
type agents struct {
	mu   sync.Mutex
	seen map[types.UID]beat
}

type beat struct {
	value   metav1.MicroTime
	changed time.Time
}

func newAgents() *agents { return &agents{seen: map[types.UID]beat{}} }

// silentFor is how long the heartbeat has been what it is now.
func (a *agents) silentFor(rtnode types.UID, heartbeat *metav1.MicroTime, now time.Time) time.Duration {
	var value metav1.MicroTime
	if heartbeat != nil {
		value = *heartbeat
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.seen[rtnode]
	if !known || !last.value.Equal(&value) || now.Before(last.changed) {
		a.seen[rtnode] = beat{value, now}
		return 0
	}
	return now.Sub(last.changed)
}

func (a *agents) forget(rtnode types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, rtnode)
}

// agentAlive is the condition AgentAlive of an agent that was heard of or not (ever), and when to look
// again.
func agentAlive(ever bool, silent, limit time.Duration) (metav1.Condition, time.Duration) {
	c := metav1.Condition{Type: "AgentAlive"}
	switch {
	case silent >= limit && ever:
		c.Status, c.Reason = metav1.ConditionFalse, reasonSilent
		c.Message = "the agent's heartbeat has not changed for " + limit.String() + "; its status is not believed"
		return c, 0
	case silent >= limit:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonUnseen, "no agent has reported for "+limit.String()
		return c, 0
	case !ever:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonUnseen, "no agent has reported yet"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonHeartbeat, "the agent's heartbeat changes"
	}
	return c, limit - silent
}
