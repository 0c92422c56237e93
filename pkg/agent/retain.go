package agent

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// vanishedFor is how long an RTNode that was deleted counts on. The controller makes it again as soon as it
// runs. What the fast path lets go of meanwhile it could not give back: a program asks for its
// real-time policy once.
const vanishedFor = 5 * time.Minute

// behindFor is how long an RTNode does not count that is older than the one whose table is in force: an API server that has not heard of the newer
// one yet does within seconds. One whose data came out of a backup never does.
const behindFor = time.Minute

// memory is the RTNode that the feeder went by last.
type memory struct {
	last   *v1alpha1.RTNode
	since  time.Time // it has been gone; zero while it is there
	behind time.Time // since when the present one is older than what is in force; zero while it is not
	// unheard is since when containers were not shown as running that the fast path governs; zero when that never was.
	unheard time.Time
}

// inForce is what the fast path has, as its report says.
type inForce struct {
	known      bool
	servers    int
	origin     types.UID
	generation int64
}

// spec is the RTNode to go by now: the present one, or, for a while, the one that has vanished. known is false
// while nothing may be told: the fast path still has the servers of an RTNode that this agent never saw, or those of a newer generation, or it is not
// known yet what it has.
func (m *memory) spec(now *v1alpha1.RTNode, at time.Time, has inForce) (r *v1alpha1.RTNode, known bool) {
	if now != nil {
		if !has.known || m.isBehind(now, at, has) {
			return nil, false
		}
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
	return nil, has.known && has.servers == 0
}

// isBehind says that an RTNode is older than the one whose table is in force: an agent that starts may be told of one by an API server that lags.
// What it does not name would be let go of.
func (m *memory) isBehind(now *v1alpha1.RTNode, at time.Time, has inForce) bool {
	if has.origin != now.UID || now.Generation >= has.generation {
		m.behind = time.Time{}
		return false
	}
	if m.behind.IsZero() {
		m.behind = at
	}
	return at.Sub(m.behind) < behindFor
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
