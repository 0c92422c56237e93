package ladder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Sources of pressure, in the order in which the controller answers them. They are the reason of the condition.
const (
	// SourceNoCore: no core of the node holds a High container.
	SourceNoCore = "NoCoreForHigh"
	// SourceMisses: as many deadlines were missed as pressuredDeadlinesTotal says, within pressuredDeadlinesPeriod.
	SourceMisses = "DeadlineMisses"
	// SourceOverruns: a container uses up even its highest budget, again and again.
	SourceOverruns = "OverrunsAtHighBudget"
	// SourceNoRoom: the node's CPU is busy, and the plan of a core has no room for a raise.
	SourceNoRoom = "BusyWithoutRoom"
)

// Sources lists them all.
var Sources = []string{SourceNoCore, SourceMisses, SourceOverruns, SourceNoRoom}

// AffectedContainer is a container under pressure.
type AffectedContainer struct {
	*state.ServerView
	Source, Detail string
	// Wanted is what its core should hold: the container with its highest budget paid for.
	Wanted rt.Server
	// Last is a time after which there were enough events to count as pressure. The controller dates the events that a look
	// finds after the previous look, however late the look is. Zero if there were fewer recently.
	Last time.Time
}

// Where is "container app of pod default/web (High)".
func (s AffectedContainer) Where() string {
	return fmt.Sprintf("container %s of pod %s/%s (%s)", s.Container, s.Namespace, s.Pod, s.Criticality)
}

// watch is the record of a node's counters. The zero value has seen nothing.
type watch struct {
	rtNode types.UID
	// since is when it began to see.
	since   time.Time
	servers map[string]history
}

// history of a server.
type history struct {
	counted          bool
	overruns, misses int64
	highest          bool
	over, missed     window
	// looked is when it was looked at.
	looked time.Time
	// overrunning and missing are set at the threshold, and stay while the events go on.
	overrunning, missing bool
	// noCore and noRoom are since when.
	noCore, noRoom time.Time
}

// sees tells whether the controller may trust the report of a node: its agent is alive.
func sees(n *state.NodeView) bool {
	return n.RTNode != nil && n.Agent == state.AgentAlive && n.UID != ""
}

// look records the current report of a node. pressed: an earlier process found the node under pressure, so one event is enough
// while this process has not watched for long.
func (w watch) look(n *state.NodeView, pressed bool, o Options, now time.Time) (watch, []AffectedContainer) {
	if w.rtNode != n.RTNode.UID || now.Before(w.since) {
		w = watch{rtNode: n.RTNode.UID, since: now}
	}
	next := watch{rtNode: w.rtNode, since: w.since, servers: map[string]history{}}
	if pressed && !w.sure(o, now) {
		o.Overruns = 1
	}
	var out []AffectedContainer
	for i := range n.Servers {
		s := &n.Servers[i]
		if s.McKube == nil || !s.Running {
			continue
		}
		h := w.servers[s.ID].next(n, s, o, now)
		next.servers[s.ID] = h
		if source, detail, last := h.judge(s, o, now); source != "" {
			out = append(out, AffectedContainer{ServerView: s, Source: source, Detail: detail, Wanted: wanted(s), Last: last})
		}
	}
	slices.SortFunc(out, func(a, b AffectedContainer) int {
		return cmp.Or(cmp.Compare(b.Criticality, a.Criticality), cmp.Compare(slices.Index(Sources, a.Source), slices.Index(Sources, b.Source)), cmp.Compare(a.ID, b.ID))
	})
	return next, out
}

// sure tells whether the controller has watched long enough to say that there is no pressure.
func (w watch) sure(o Options, now time.Time) bool {
	return w.rtNode != "" && now.Sub(w.since) > o.Window
}

// stirs tells whether a condition holds that becomes pressure if it only lasts.
func (w watch) stirs() bool {
	for _, h := range w.servers {
		if !h.noCore.IsZero() || !h.noRoom.IsZero() {
			return true
		}
	}
	return false
}

// wanted is the server with its highest budget paid for, by its claim and not by the core's reserve.
func wanted(s *state.ServerView) rt.Server {
	out := s.InForce()
	if s.Physical == rt.NoCore {
		out = s.Server
	}
	out.Limited = false
	return out
}

// next records one look at a server.
func (h history) next(n *state.NodeView, s *state.ServerView, o Options, now time.Time) history {
	overruns, misses := int64(0), int64(0)
	if a := s.Applied; a != nil {
		if h.counted {
			overruns, misses = max(0, a.Overruns-h.overruns), max(0, a.Misses-h.misses)
		}
		if !h.highest {
			overruns = 0 // they led up to the highest budget
		}
		h.counted, h.overruns, h.misses = true, a.Overruns, a.Misses
		h.highest = a.BudgetUs > 0 && a.BudgetUs >= highestOf(s)
	}
	if s.Criticality == rt.Low {
		overruns = 0
	}
	h.over = h.over.add(h.looked, now, overruns, o.Window)
	h.overrunning = h.over.count() >= int64(o.Overruns) || h.overrunning && now.Sub(h.over.last) < o.Window
	total, period := missesAllowed(s)
	h.missed = h.missed.add(h.looked, now, misses, period)
	h.looked = now
	h.missing = total > 0 && (h.missed.count() >= total || h.missing && now.Sub(h.missed.last) < quiet(total, period, o))
	h.noCore = since(h.noCore, lacksCore(s), now)
	h.noRoom = since(h.noRoom, lacksRoom(n, s), now)
	return h
}

func highestOf(s *state.ServerView) int64 {
	in := s.InForce()
	return in.Guaranteed()
}

// missesAllowed is how many missed deadlines within which time are too many; 0 for no limit.
func missesAllowed(s *state.ServerView) (total int64, period time.Duration) {
	misses, seconds := ptr.Deref(s.McKube.Spec.PressuredDeadlinesTotal, 0), ptr.Deref(s.McKube.Spec.PressuredDeadlinesPeriod, 0)
	if misses == 0 || seconds == 0 {
		return 0, time.Second
	}
	return int64(misses), time.Duration(seconds) * time.Second
}

// quiet is the time without a missed deadline after which misses count as over. At a lower rate there would be no pressure.
func quiet(total int64, period time.Duration, o Options) time.Duration {
	return max(o.Window, period/time.Duration(total))
}

// lacksCore tells whether a High container has no core. Its spec has none for it, or its agent could not apply even its low
// budget. A container that does not exist yet, or crashes, does not lack a core.
func lacksCore(s *state.ServerView) bool {
	if s.Criticality != rt.High || s.Witness == rt.NoCore {
		return false
	}
	if s.Physical == rt.NoCore {
		return true
	}
	a := s.Applied
	return a != nil && a.Error != "" && a.BudgetUs < s.InForce().Low && !strings.Contains(a.Error, absent)
}

// lacks describes what a container lacks that has no core, or no budget on its core.
func lacks(s *state.ServerView) string {
	if s.Physical == rt.NoCore || s.Applied == nil || s.Applied.Error == "" {
		return "no core of the node holds it"
	}
	return "its node's agent could not apply its budget: " + record.Short(s.Applied.Error, longestWhy)
}

// absent is the error text of agents for a container that they do not find.
const absent = "has no container"

// lacksRoom tells whether a busy node has no room to raise a container's budget. The controller asks agents to raise every
// container that has room.
func lacksRoom(n *state.NodeView, s *state.ServerView) bool {
	if !n.Busy || s.Spec == nil || s.Applied == nil || s.Applied.Error != "" {
		return false
	}
	in := s.InForce()
	return in.MayEscalate() && s.Spec.Level != levelHigh && s.Applied.BudgetUs < in.High
}

// since is when something began that is so now; zero when it is not.
func since(was time.Time, is bool, now time.Time) time.Time {
	switch {
	case !is:
		return time.Time{}
	case was.IsZero() || now.Before(was):
		return now
	}
	return was
}

// judge names the source of a server's pressure; empty if there is none.
func (h history) judge(s *state.ServerView, o Options, now time.Time) (source, detail string, last time.Time) {
	total, period := missesAllowed(s)
	switch {
	case !h.noCore.IsZero() && now.Sub(h.noCore) >= o.Delay:
		return SourceNoCore, lacks(s), now
	case h.missing:
		return SourceMisses, fmt.Sprintf("%d deadlines missed within %s, %d are too many", h.missed.count(), period, total), h.missed.after(total)
	case h.overrunning:
		return SourceOverruns, fmt.Sprintf("%d overruns of its highest budget within %s", h.over.count(), o.Window), h.over.after(int64(o.Overruns))
	case !h.noRoom.IsZero() && now.Sub(h.noRoom) >= o.Delay:
		return SourceNoRoom, "the node's CPU is busy and its core has no room for its high budget", now
	}
	return "", "", time.Time{}
}
