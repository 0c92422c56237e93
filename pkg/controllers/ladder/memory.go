package ladder

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// lag is how long the cache may take to show a write. After that the controller trusts the cache.
const lag = 5 * time.Second

// memory is what the controller remembers of a node. Losing it costs waiting, and a repeated Event.
type memory struct {
	node  types.UID
	watch watch
	// heard is when the node's agent was last alive, or else when the controller first looked.
	heard time.Time
	// episode as it was last seen, and since when it is in its stage.
	episode Episode
	entered time.Time
	// wrote and taint are writes that the cache may not show yet. patience is until when.
	wrote    *Episode
	taint    *bool
	patience time.Time
	// told are the actions that were reported. unanswered is the reported reason why no action was possible.
	told       map[string]bool
	unanswered string
	// barred: the reason is a step that the API server refuses to store.
	barred bool
	// concerned are the objects of the last Events, besides the node.
	concerned []runtime.Object
	// planned is when to plan again.
	planned time.Time
	// counted is the stage, and vain whether the node has no answer, as the gauges have them.
	counted string
	vain    bool
}

// behind tells whether the cache does not yet show the last write.
func (m *memory) behind(n *state.NodeView, now time.Time) bool {
	if !now.Before(m.patience) {
		m.wrote, m.taint = nil, nil
	}
	if m.wrote != nil && m.wrote.same(episodeOf(n)) {
		m.wrote = nil
	}
	if m.taint != nil && *m.taint == n.Tainted(taintKey) {
		m.taint = nil
	}
	return m.wrote != nil || m.taint != nil
}

// silence is the time for which the node's agent has not been alive.
func (m *memory) silence(sees bool, now time.Time) time.Duration {
	if sees || m.heard.IsZero() || now.Before(m.heard) {
		m.heard = now
	}
	return now.Sub(m.heard)
}

// enter notes the stage that the episode is in.
func (m *memory) enter(e Episode, now time.Time) (changed bool) {
	if m.episode.same(e) && !m.entered.IsZero() {
		return false
	}
	before := m.episode
	if before.Begun != e.Begun {
		m.told = nil
	}
	if before.Begun != e.Begun || !e.Pressed() {
		m.unanswered = "" // and a relapse is told again
	}
	m.episode, m.entered = e, now
	return true
}
