package fastpath_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// The report says of what the table in force was made, also in the process after.
func TestTheOriginOfATableIsReported(t *testing.T) {
	k, dir := newKernel("/a"), t.TempDir()
	n := start(t, k, dir)
	made := tableOf(3, high("a", "/a", 0))
	made.Origin = "u"
	n.apply(made)
	n.end()
	if r, after := n.Report(), start(t, k, dir).Report(); r.Origin != "u" || after.Origin != "u" || after.Generation != 3 {
		t.Errorf("origin %q, and then %q of generation %d; want u of 3", r.Origin, after.Origin, after.Generation)
	}
}

// A plan that names containers which are gone, or are on another core by now, harms no server, and is told of once.
func TestAPlanOlderThanItsContainersIsToldOf(t *testing.T) {
	log, k := logged(t), newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	after := func(d time.Duration) int {
		n.now.Add(d.Nanoseconds())
		n.sweep()
		return strings.Count(log.String(), "plans are older than the containers")
	}
	older := tableOf(1, high("a", "/a", 0), high("b", "/b", 1))
	older.Plans[0].Raise = append(older.Plans[0].Raise, table.Raise{ID: "gone", ToUs: 4_000}, table.Raise{ID: "b", ToUs: 4_000})
	n.apply(older)
	if told, r := after(5*time.Second), n.Report(); told != 0 || r.Stale != 2 || r.Servers[0].Error+r.Servers[1].Error != "" {
		t.Errorf("told %d times at once, %+v; want it reported, and both governed", told, r)
	}
	n.send(0, n.programs.event(100, 1, n.now.Load()))
	if a := n.reported("a"); a.BudgetUs != 4_000 {
		t.Errorf("%+v; want what the plan says of it done all the same", a)
	}
	if told := after(10 * time.Second); told != 1 || !strings.Contains(log.String(), `servers="core 0: b; core 0: gone" count=2`) {
		t.Errorf("told %d times: %s", told, log)
	}
	older.Generation++
	n.apply(older)
	if told := after(time.Hour); told != 1 {
		t.Errorf("told %d times of the same", told)
	}
	older.Plans[0].Raise = older.Plans[0].Raise[:2]
	n.apply(older)
	if told := after(time.Second); told != 2 {
		t.Errorf("told %d times; want something else told", told)
	}
	older.Plans[0].Raise[1].ID = "other"
	n.apply(older)
	if told := after(30 * time.Second); told != 2 {
		t.Errorf("told %d times; want it told once a minute at most", told)
	}
	if told := after(time.Minute); told != 3 {
		t.Errorf("told %d times; want nothing left out", told)
	}
	n.apply(tableOf(9, high("a", "/a", 0), high("b", "/b", 1)))
	if told, r := after(time.Hour), n.Report(); told != 3 || r.Stale != 0 {
		t.Errorf("told %d times, %d reported; want none", told, r.Stale)
	}
}
