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

// agents remembers when the heartbeat of each RTNode, in its status or by the Lease of its agent, last changed, by the
// controller's own clock: what the agent's clock says, or that it jumped, does not matter. After a restart every agent is
// as good as just seen.
type agents struct {
	mu   sync.Mutex
	seen map[types.UID]beat
}

type beat struct {
	status, lease metav1.MicroTime
	changed       time.Time
}

func newAgents() *agents { return &agents{seen: map[types.UID]beat{}} }

// silentFor is how long nothing was heard of an agent; the heartbeat is that of the status.
func (a *agents) silentFor(rtnode types.UID, heartbeat *metav1.MicroTime, now time.Time) time.Duration {
	return a.heard(rtnode, now, func(b *beat) {
		if heartbeat != nil {
			b.status = *heartbeat
		}
	})
}

// renewed notes when an agent says that it renewed its Lease, and returns how long nothing was heard of it before.
func (a *agents) renewed(rtnode types.UID, at metav1.MicroTime, now time.Time) (silent time.Duration) {
	a.mu.Lock()
	if last, known := a.seen[rtnode]; known {
		silent = now.Sub(last.changed)
	}
	a.mu.Unlock()
	a.heard(rtnode, now, func(b *beat) { b.lease = at })
	return silent
}

// heard is how long what an agent tells has been what it is with what is told now.
func (a *agents) heard(rtnode types.UID, now time.Time, tell func(*beat)) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.seen[rtnode]
	b := last
	tell(&b)
	if !known || !b.status.Equal(&last.status) || !b.lease.Equal(&last.lease) || now.Before(last.changed) {
		b.changed = now
		a.seen[rtnode] = b
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
