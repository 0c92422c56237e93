package ladder

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// lag is how long a cache may need to show what was written; after that what it shows counts.
const lag = 5 * time.Second

// memory is what the loop remembers of a node. Losing it costs waiting, and an Event told twice.
type memory struct {
	node  types.UID
	watch watch
	// heard is when the node's agent was last believed, or else when nobody had yet asked.
	heard time.Time
	// episode as it was last seen, and since when it is in its stage.
	episode Episode
	entered time.Time
	// wrote is what was written and may not be shown yet, until when.
	wrote    *Episode
	taint    *bool
	patience time.Time
	// told are the actions that were told of; unanswered is why nothing could be done, as it was told.
	told       map[string]bool
	unanswered string
	// barred: that is a step which may not be written.
	barred bool
	// concerned are whom the last Events were for, beside the node.
	concerned []runtime.Object
	// planned is when to plan again.
	planned time.Time
	// counted is the stage, and vain whether the node is without an answer, as the gauges have it.
	counted string
	vain    bool
}

// behind tells whether the cache does not show yet what was written.
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

// silence is for how long the node's agent was not believed.
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
