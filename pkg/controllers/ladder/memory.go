package ladder

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/state"
)

// lag is how long a cache may need to show what was written; after that what it shows counts.
const lag = 5 * time.Second

// soonAgain is for how many times the calm a new pressure counts as the old one's relapse.
const soonAgain = 4

// memory is what the loop remembers of a node. Losing it costs waiting, and an Event told twice.
type memory struct {
	node  types.UID
	watch watch
	// episode as it was last seen, and since when it is in its stage.
	episode Episode
	entered time.Time
	// relapses of late: how often pressure came back while things were given back, or soon after.
	relapses int
	ended    time.Time
	// wrote is what was written and may not be shown yet, until when.
	wrote    *Episode
	taint    *bool
	patience time.Time
	// told are the actions that were told of; unanswered is why nothing could be done, as it was told.
	told       map[string]bool
	unanswered string
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

// enter notes the stage that the episode is in, and counts relapses.
func (m *memory) enter(e Episode, o Options, now time.Time) (changed bool) {
	if m.episode.same(e) && !m.entered.IsZero() {
		return false
	}
	before := m.episode
	switch {
	case e.Pressed() && before.Active && !before.Pressed():
		m.relapses++
	case e.Pressed() && !before.Active && !m.ended.IsZero() && now.Sub(m.ended) < soonAgain*o.Calm<<min(m.relapses, mostRelapses):
		m.relapses++ // what was given back, or came back, may well be why
	case e.Pressed() && !before.Active:
		m.relapses = 0
	case before.Active && !e.Active:
		m.ended = now
	}
	if before.Begun != e.Begun {
		m.told, m.unanswered = nil, ""
	}
	m.episode, m.entered = e, now
	return true
}
