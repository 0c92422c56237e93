package actuator

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// notes are what threads had that the hot side changed before they were on record: it must neither wait for the journal nor leave them
// what they have, so the slow side writes that down afterwards. One side writes, the other reads, and neither waits for the other.
// There is room for as many threads as a group may have.
type notes struct {
	of [fifoThreads]met
	// begin and end count those that are on record, and all.
	begin, end atomic.Uint32
}

type met struct {
	tid int32
	had unix.SchedAttr
}

// note what a thread has; the first that is noted of it counts. HOT.
func (n *notes) note(tid int32, a *unix.SchedAttr) {
	begin, end := n.begin.Load(), n.end.Load()
	if end-begin == fifoThreads {
		return
	}
	for i := begin; i != end; i++ {
		if n.of[i%fifoThreads].tid == tid {
			return
		}
	}
	n.of[end%fifoThreads] = met{tid, *a}
	n.end.Store(end + 1)
}

// read what is noted, up to an end for done: that is the first note about a thread that was not looked at. It may have come once the threads were
// listed, so that it is in the next list. Those that were noted when they were listed, and were not looked at, have ended.
func (n *notes) read(listed uint32, looked map[int32]unix.SchedAttr) (had map[int32]unix.SchedAttr, end uint32) {
	had, end = map[int32]unix.SchedAttr{}, n.end.Load()
	for i, last := n.begin.Load(), end; i != last; i++ {
		m := n.of[i%fifoThreads]
		had[m.tid] = m.had
		if _, ok := looked[m.tid]; !ok && end == last && int32(i-listed) >= 0 {
			end = i
		}
	}
	return had, end
}

// done makes room once what was read is on record.
func (n *notes) done(end uint32) { n.begin.Store(end) }

func (n *notes) none() bool { return n.begin.Load() == n.end.Load() }

// sight is one look at the threads of a group.
type sight struct {
	// attrs are what they have, noted what some had before the hot side changed them; up to an end that is of these threads.
	attrs, noted map[int32]unix.SchedAttr
	end          uint32
	// stopped: an ordinary thread may be so by the hot side, or have inherited it.
	stopped bool
}

// look at threads, which were listed when so many were noted. What the hot side does meanwhile is noted before it is done, so the notes are read last.
func (g *fifoGroup) look(tids []int32, listed uint32) sight {
	phase := g.phase.Load()
	quiet := phase&1 == 0 && g.inside.Load() == 0
	s := sight{attrs: g.backend.attrs(tids)}
	s.noted, s.end = g.met.read(listed, s.attrs)
	s.stopped = !quiet || g.phase.Load() != phase
	return s
}

// had is what a thread had before we changed it.
func (s sight) had(tid int32) unix.SchedAttr {
	if a, ok := s.noted[tid]; ok {
		return a
	}
	return s.attrs[tid]
}

// ours says that threads of the group may have been changed by us: by this process, or by one before it.
func (g *fifoGroup) ours() bool {
	return g.recorded.Load() || !g.met.none() ||
		slices.ContainsFunc(g.backend.journal.of(g.path), func(r record) bool { return r.Thread != 0 && r.Inode == g.id() })
}

// lineage tells threads that inherited what we give from those that have something of their own.
type lineage struct {
	*fifoGroup
	// first is what the group's first thread had; nil: there was none yet, and nothing to inherit.
	first *schedule
	// given: it was on record before, so that there was our priority to inherit. stopped: and so is who is ordinary.
	given, stopped bool
}

func (l lineage) inherited(a unix.SchedAttr) bool {
	if l.given && l.backend.gave(l.path, l.id(), a) {
		return true
	}
	return l.first != nil && l.stopped && ordinary(&a) && l.first.endows()
}

// remember journals what threads had before they were first changed. Those that inherited what we give get what the first one had.
func (g *fifoGroup) remember(s sight) error {
	m := g.backend.machine
	had, threads, err := m.threadsHad(g.path, s.attrs)
	if err != nil {
		return err
	}
	threads = slices.DeleteFunc(threads, func(r record) bool { return r.Inode != g.id() })
	l := lineage{fifoGroup: g, stopped: s.stopped}
	if n := len(threads); n > 0 {
		l.first, l.given, l.stopped = threads[n-1].Attr, true, s.stopped || threads[n-1].Attr.endows() && m.stopped(threads, s.attrs)
	}
	records := []record{given(g.path, g.id(), uint32(g.priority.Load()))}
	if g.crowded.Load() {
		records = append(records, expelled(g.path, g.id()))
	}
	for _, tid := range slices.Sorted(maps.Keys(s.attrs)) {
		a := s.had(tid)
		started, err := m.kernel.started(int(tid))
		if err != nil || had[int(tid)] == started || l.inherited(a) || g.spares(a, len(threads)+len(records)) {
			continue
		}
		records = append(records, record{
			Controller: g.backend.hierarchy(), Group: g.path, Inode: g.id(),
			Thread: int(tid), Started: started, Attr: scheduleOf(a), By: FIFO,
		})
		if l.first == nil {
			l.first = scheduleOf(a)
		}
	}
	if err := m.journal.keep(records...); err != nil {
		return err
	}
	g.met.done(s.end)
	if l.first != nil {
		g.recorded.Store(true)
	}
	return nil
}

// spares says that a thread of a crowd is none that is changed, or one too many: what a crowd has the journal hold is bounded.
func (g *fifoGroup) spares(a unix.SchedAttr, records int) bool {
	return g.crowded.Load() && (!urgent(a.Policy) || records > 2*fifoThreads)
}

// tell the journal what is noted when the backend lets go of the group: the backend will not look at it again.
func (g *fifoGroup) tell() error {
	if g.met.none() {
		return nil
	}
	listed := g.met.end.Load()
	tids, err := g.backend.threadsOf(g.files)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the threads of %s: %w", g.path, err)
	}
	return g.remember(g.look(tids, listed))
}
