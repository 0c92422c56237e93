package actuator

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// requestedOne is a container that its runtime makes as the fast path asked for.
type requestedOne struct {
	*simTree
	layout
	b      Backend
	server Server
	others containers
	// before is what all files would hold without us.
	before map[string]string
	tid    int
}

// make a group as a runtime does by itself.
func (r *requestedOne) make() {
	r.t.Helper()
	for _, c := range []string{"cpu", "cpuset"} {
		parent, err := r.cg.Dir(c, filepath.Dir(r.server.Cgroup))
		must(r.t, err)
		dir := filepath.Join(parent, filepath.Base(r.server.Cgroup))
		if err := r.makeGroup(dir); !errors.Is(err, os.ErrExist) {
			must(r.t, err)
		}
		if c == "cpuset" && !r.cg.InUnified(c) {
			r.put(c, cpusetCPUs, slurp(filepath.Join(parent, cpusetCPUs)))
		}
	}
	r.put("cpu", rtMax, "max 100000")
}

// put a file of the container that is there.
func (r *requestedOne) put(controller, name, value string) {
	r.t.Helper()
	dir, err := r.cg.Dir(controller, r.server.Cgroup)
	must(r.t, err)
	if file := filepath.Join(dir, name); slurp(file) != "" || name == cpusetCPUs {
		must(r.t, os.WriteFile(file, []byte(value+"\n"), 0o600))
	}
}

// asks for room, and has the container made with the answer, in which a thread runs that is as urgent as it may be.
func asks(t *testing.T, l layout) *requestedOne {
	t.Helper()
	s := newSim(t, l.mount)
	c := populate(s)
	r := &requestedOne{simTree: s, layout: l, others: c, b: s.probe(l.backend), server: serverOf(above(c.first)[2] + "/" + strings.Repeat("a", 64))}
	r.server.ID = "pod/container"
	r.make()
	r.before = r.files()
	s.remove(r.server.Cgroup)
	first, err := r.b.Room(r.server)
	must(t, err)
	r.make()
	r.write(first)
	return r
}

func (r *requestedOne) write(first table.First) {
	policy := uint32(unix.SCHED_NORMAL)
	if first.RuntimeUs > 0 {
		r.put("cpu", rtPeriod, itoa(first.PeriodUs))
		r.put("cpu", rtRuntime, itoa(first.RuntimeUs))
		policy = unix.SCHED_FIFO
	}
	for name, value := range first.Unified {
		r.put("cpu", name, value)
	}
	r.put("cpuset", cpusetCPUs, itoa(int64(r.server.Core)))
	r.tid = r.spawn(r.server.Cgroup, policy)
}

func (r *requestedOne) files() map[string]string {
	out := r.snapshot()
	maps.DeleteFunc(out, func(name, _ string) bool { return strings.HasPrefix(name, "thread ") })
	return out
}

// sweep after a while.
func (r *requestedOne) sweep(after time.Duration) {
	r.t.Helper()
	r.clock += after.Nanoseconds()
	if _, err := r.b.Sweep(); err != nil {
		r.t.Errorf("Sweep: %v", err)
	}
}

// late: no process opens the group in time.
func (r *requestedOne) late() {
	r.t.Helper()
	r.sweep(0)
	r.sweep(openedWithin + time.Second)
}

// asWithoutUs expects what there would be without us, in the files, of the thread and in the journal.
func (r *requestedOne) asWithoutUs() {
	r.t.Helper()
	if d := differences(r.before, r.files()); len(d) > 0 {
		r.t.Errorf("left:\n%s", strings.Join(d, "\n"))
	}
	expectHas(r.t, r.simTree, r.tid, unix.SchedAttr{})
	if j, err := openJournal(r.state, "boot-1"); err != nil || len(j.records) != 0 {
		r.t.Errorf("the journal has %v, %v; want nothing", j.records, err)
	}
}

// What a runtime wrote into a new group at our request is put back whenever the container is let go of: whether it was opened in time, late or never,
// by this process or another, and whatever the backend.
func TestWhatARuntimeWroteAtOurRequestGoesBack(t *testing.T) {
	open := func(r *requestedOne) Group { return mustOpen(r.t, r.b, r.server) }
	restart := func(r *requestedOne) { r.b = r.probe(r.backend) }
	for name, letGo := range map[string]func(r *requestedOne){
		"never opened":               func(r *requestedOne) { r.late() },
		"never opened, by the next":  func(r *requestedOne) { r.sweep(0); restart(r); r.late() },
		"restored":                   func(r *requestedOne) { must(r.t, r.b.Restore()) },
		"restored by the next":       func(r *requestedOne) { restart(r); must(r.t, r.b.Restore()) },
		"restored by another":        func(r *requestedOne) { r.b, _ = r.other(Blocked); must(r.t, r.b.Restore()) },
		"opened, closed":             func(r *requestedOne) { must(r.t, open(r).Close(true)) },
		"opened, restored":           func(r *requestedOne) { open(r); restart(r); must(r.t, r.b.Restore()) },
		"opened late, closed":        func(r *requestedOne) { r.late(); must(r.t, open(r).Close(true)) },
		"opened late, by the next":   func(r *requestedOne) { r.late(); restart(r); must(r.t, open(r).Close(true)) },
		"opened late, restored":      func(r *requestedOne) { r.late(); open(r); must(r.t, r.b.Restore()) },
		"made anew":                  anew,
		"out of the table":           func(r *requestedOne) { open(r); restart(r); r.late() },
		"cannot be opened":           cannotBeOpened,
		"cannot be put back at once": refused,
	} {
		for _, l := range layouts {
			t.Run(name+", "+l.name, func(t *testing.T) {
				t.Parallel()
				r := asks(t, l)
				letGo(r)
				r.sweep(settleAfter + time.Second)
				r.sweep(settleAfter + time.Second)
				r.asWithoutUs()
			})
		}
	}
}

// anew: the container could not be started, and its runtime makes another, which does not come to be.
func anew(r *requestedOne) {
	next := r.server
	next.Cgroup = filepath.Dir(next.Cgroup) + "/" + strings.Repeat("b", 64)
	if _, err := r.b.Room(next); err != nil {
		r.t.Fatal(err)
	}
	r.sweep(settleAfter)
	r.sweep(comesWithin)
}

// cannotBeOpened: for longer than that is tried before it is let go of.
func cannotBeOpened(r *requestedOne) {
	moved := r.server
	moved.Core = 3
	r.refuse = cpusetCPUs
	if _, err := r.b.Open(moved); err == nil {
		r.t.Fatal("Open succeeded; the test is wrong")
	}
	r.refuse = ""
	r.sweep(sparedFor + time.Second)
}

// refused: nothing of it is forgotten before it is done.
func refused(r *requestedOne) {
	r.sweep(0)
	r.clock += (openedWithin + time.Second).Nanoseconds()
	r.refuse = cpusetCPUs
	if _, err := r.b.Sweep(); err == nil {
		r.t.Error("nothing says that it could not be put back")
	}
	r.refuse = ""
}

// Killed before any write, or before the journal forgets what was done, the next process has it all: the one whose table has the server at last, and the one whose
// table has not.
func TestKilledWhileARequestIsTakenBack(t *testing.T) {
	for _, l := range layouts {
		for _, opens := range []bool{false, true} {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				writes := killedWhileTakenBack(t, l, opens, 0)
				for _, k := range sampling.Points(t, 1, writes, deathsPerLayout/2) {
					killedWhileTakenBack(t, l, opens, k)
				}
			})
		}
	}
}

// killedWhileTakenBack kills the process before the write k of those that take a request back, or, with 0, once all are made and the journal
// does not know it yet. It returns how many writes were made.
func killedWhileTakenBack(t *testing.T, l layout, opens bool, k int) int {
	t.Helper()
	r := asks(t, l)
	r.sweep(0)
	r.clock += (openedWithin + time.Second).Nanoseconds()
	journal := filepath.Join(r.state, journalFile)
	text, err := os.ReadFile(journal)
	must(t, err)
	before := r.writes
	if k > 0 {
		r.killAt = before + k
	}
	_, err = r.b.Sweep()
	if r.killed != (k > 0) {
		t.Fatalf("killed before write %d: %t", k, r.killed)
	}
	writes := r.writes - before
	if r.killed, r.killAt = false, 0; k == 0 {
		must(t, err)
		must(t, os.WriteFile(journal, text, 0o600))
	}
	r.b = r.probe(l.backend)
	if opens {
		must(t, mustOpen(t, r.b, r.server).Close(true))
	}
	r.late()
	r.sweep(settleAfter + time.Second)
	r.sweep(settleAfter + time.Second)
	if r.asWithoutUs(); t.Failed() {
		t.Fatalf("killed before write %d of %d", k, writes)
	}
	return writes
}

// A note of the version before says nothing of files: whichever a runtime may have written are put back, and what backends do not ask for is left alone.
func TestRequestsOfFormerVersions(t *testing.T) {
	r := asks(t, layouts[0])
	journal := filepath.Join(r.state, journalFile)
	text, err := os.ReadFile(journal)
	must(t, err)
	former := strings.Replace(string(text), `,\"Files\":[\"cpu.rt_runtime_us\",\"cpu.rt_period_us\"]`, "", 1)
	if former == string(text) {
		t.Fatalf("the note names no files: %s", text)
	}
	must(t, os.WriteFile(journal, []byte(former), 0o600))
	r.b = r.probe(RTGroup)
	r.late()
	r.asWithoutUs()
	for want, of := range map[string]room{
		"cpu.rt_period_us cpu.rt_runtime_us cpu.rt.max": {},
		"": {Files: []string{}}, "cpu.rt.max": {Files: []string{"../cpu.rt.max", rtMax, cpuMax}},
	} {
		if got := strings.Join(of.requested(), " "); got != want {
			t.Errorf("requested are %q of %q; want %q", got, of.Files, want)
		}
	}
}

// Where the agent asked for no budget, one that is there belongs to another program.
func TestBudgetsThatWereNotRequested(t *testing.T) {
	r := asks(t, layouts[3])
	dir, err := r.cg.Dir("cpu", r.server.Cgroup)
	must(t, err)
	for name, text := range map[string]string{rtRuntime: "3000", rtPeriod: "10000"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r.late()
	if got := r.get("cpu", r.server.Cgroup, rtRuntime); got != "3000" {
		t.Errorf("it has %s us; want 3000", got)
	}
	if got := r.get("cpuset", r.server.Cgroup, cpusetCPUs); got != "0-3" {
		t.Errorf("it runs on %s; want 0-3", got)
	}
}
