package fastpath_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// logged is what is written to the log until the test ends.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(func() { slog.SetDefault(former) })
	return &out
}

// expectLost checks that a server's group was let go of for good, and that the log tells why.
func expectLost(t *testing.T, n *node, g *group, log *bytes.Buffer) {
	t.Helper()
	if !g.closed || !g.restored || len(n.programs.slots) != 0 {
		t.Errorf("closed %v, put back %v, watched %v", g.closed, g.restored, n.programs.slots)
	}
	for _, want := range []string{"level=WARN", "/a is /b now", "server=a"} {
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("the log says %q; want %s", text, want)
		}
	}
}

var errRenamed = fmt.Errorf("/a is /b now: %w", actuator.ErrRenamed)

// A server that is stopped when its group is renamed gets back what it had; nothing makes it real-time again before that.
func TestARenamedGroupGetsBackWhatItHad(t *testing.T) {
	log := logged(t)
	n, k := stopped(t)
	g := k.groups["/a"]
	k.change(func() { g.checkErr = errRenamed; delete(k.groups, "/a") })
	n.sweep()
	expectLost(t, n, g, log)
	if !g.throttled {
		t.Error("it was made real-time again")
	}
	if a := n.reported("a"); a.Error == "" {
		t.Errorf("%+v; want why it is not governed", a)
	}
}

// So does one that is to go to another core.
func TestAMoveFindsARenamedGroup(t *testing.T) {
	log, k := logged(t), newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	g := k.groups["/a"]
	k.change(func() { g.moveErr = errRenamed; delete(k.groups, "/a") })
	n.apply(tableOf(2, high("a", "/a", 1)))
	expectLost(t, n, g, log)
}

// No raise waits for a victim that has gone: it makes room by that, and has not refused to.
func TestAVictimThatHasGoneRefusesNothing(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	a, b := high("a", "/a", 0), high("b", "/b", 0)
	a.Criticality, a.HighUs = "Low", a.LowUs
	squeezing := tableOf(1, a, b)
	squeezing.Plans[0].Squeeze = []table.Squeeze{{ID: "a", FloorUs: 1_000}}
	n.apply(squeezing)
	n.now.Add(2_000_000_000)
	k.change(func() { k.groups["/a"].checkErr = actuator.ErrGone; delete(k.groups, "/a") })
	k.groups["/b"].counting = func() { n.send(0, n.programs.event(101, ebpf.KindAlarm, n.now.Load())) }
	n.sweep()
	if got := n.reported("b"); got.BudgetUs != 4_000 || got.Refused != 0 {
		t.Errorf("%+v; want it raised at once", got)
	}
}
