package actuator

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// governed are the threads that share the budget: those that the application made real-time, or else the first threads
// of its processes. A process that comes later is one of those once two looks on end have met it: probes and the like, which are soon
// gone, would have all budgets set anew each time. Late are those that do not share it yet.
func (g *deadlineGroup) governed() (attrs map[int32]unix.SchedAttr, late map[int32]bool, err error) {
	tids, err := g.backend.threadsOf(g.files)
	if err != nil {
		return nil, nil, fmt.Errorf("listing the threads of %s: %w", g.server.Cgroup, asGone(err))
	}
	processes, err := g.processes()
	if err != nil {
		return nil, nil, err
	}
	attrs, leaders, chosen := g.sort(tids, processes)
	if chosen {
		return attrs, nil, nil
	}
	late = map[int32]bool{}
	first := len(attrs) == 0
	for tid, a := range leaders {
		if first || g.late[tid] {
			attrs[tid] = a
		} else {
			late[tid] = true
		}
	}
	return attrs, late, nil
}

// sort threads into those that are governed, or made real-time by the application, and the first ones of processes among
// the others. Chosen: the application has made some real-time.
func (g *deadlineGroup) sort(tids []int32, processes map[int32]bool) (attrs, leaders map[int32]unix.SchedAttr, chosen bool) {
	attrs, leaders = map[int32]unix.SchedAttr{}, map[int32]unix.SchedAttr{}
	before := g.recorded()
	for _, tid := range tids {
		var a unix.SchedAttr
		if g.backend.kernel.attr(int(tid), &a) != nil {
			continue
		}
		t, ours := g.seen[tid]
		if !ours {
			t.ordinary, ours = g.wasOrdinary(tid, a, before)
		}
		if ours || urgent(a.Policy) {
			attrs[tid] = a
			chosen = chosen || !t.ordinary
		} else if processes[tid] {
			leaders[tid] = a
		}
	}
	return attrs, leaders, chosen
}

// recorded are the threads that the journal has for the group, by number: of those that had the same one after the other, the last.
func (g *deadlineGroup) recorded() map[int32]record {
	out := map[int32]record{}
	for _, r := range g.backend.journal.of(g.server.Cgroup) {
		if _, later := out[int32(r.Thread)]; !later && r.Thread != 0 && r.Inode == g.id() && r.By == Deadline {
			out[int32(r.Thread)] = r
		}
	}
	return out
}

// wasOrdinary says that a thread is, or was before we governed it: of one that the process before this one governed the journal knows. It
// need not be a deadline thread now, as that may have ended while it was free.
func (g *deadlineGroup) wasOrdinary(tid int32, a unix.SchedAttr, before map[int32]record) (ordinary, ours bool) {
	if r, ok := before[tid]; ok && g.backend.tellsOf(r) {
		return !urgent(r.Attr.Policy), true
	}
	return !urgent(a.Policy), false
}

func (g *deadlineGroup) processes() (map[int32]bool, error) {
	text, err := g.read("cgroup.procs")
	if err != nil {
		return nil, fmt.Errorf("listing the processes of %s: %w", g.server.Cgroup, asGone(err))
	}
	pids, _ := parseProcesses(text) // nothing can be done to others
	out := make(map[int32]bool, len(pids))
	for _, pid := range pids {
		out[int32(pid)] = true
	}
	return out, nil
}
