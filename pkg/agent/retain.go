package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// vanishedFor is how long an RTNode that was deleted counts on. The controller makes it again as soon as it
// runs. What the fast path lets go of meanwhile it could not give back: a program asks for its
// real-time policy once.
const vanishedFor = 5 * time.Minute

// memory is the RTNode that the feeder went by last.
type memory struct {
	last  *v1alpha1.RTNode
	since time.Time // it has been gone; zero while it is there
}

// spec is the RTNode to go by now: the present one, or, for a while, the one that has vanished. known is false
// while nothing may be told: the fast path still has the servers of an RTNode that this agent never saw.
func (m *memory) spec(now *v1alpha1.RTNode, at time.Time, governed func() (servers int, known bool)) (r *v1alpha1.RTNode, known bool) {
	if now != nil {
		m.last, m.since = now, time.Time{}
		return now, true
	}
	if m.since.IsZero() {
		m.since = at
	}
	if at.Sub(m.since) >= vanishedFor {
		m.last = nil
		return nil, true
	}
	if m.last != nil {
		return m.last, true
	}
	servers, known := governed()
	return nil, known && servers == 0
}

// vanished says since when the RTNode has been gone that is still gone by; empty when none is.
func (m *memory) vanished() string {
	if m.since.IsZero() || m.last == nil {
		return ""
	}
	return fmt.Sprintf("RTNode %s has been gone since %s; what it asked for stays in force until %s", m.last.Name,
		m.since.UTC().Format(time.RFC3339), m.since.Add(vanishedFor).UTC().Format(time.RFC3339))
}

// retain puts former entries back for servers whose new ones are at fault, as long as their containers are the
// same: a spec that somebody spoilt, or a group that could not be looked for once, takes nothing from a
// container that runs. Plans likewise. It depends on nothing but its arguments.
func retain(t table.Table, faults map[string]string, before table.Table, found map[discover.Key]discover.Found) table.Table {
	running, groups := map[string]string{}, map[string]bool{}
	for key, f := range found {
		running[serverID(key)] = f.ID
	}
	for _, s := range t.Servers {
		groups[s.Cgroup] = true
	}
	for _, s := range before.Servers {
		if faults[s.ID] != "" && s.Cgroup != "" && !groups[s.Cgroup] && running[s.ID] == s.ContainerID {
			t.Servers = append(t.Servers, s)
		}
	}
	for _, p := range before.Plans {
		same := func(other table.Plan) bool { return other.Core == p.Core }
		if faults[planID(p.Core)] != "" && !slices.ContainsFunc(t.Plans, same) {
			t.Plans = append(t.Plans, p)
		}
	}
	return t.Sorted()
}
