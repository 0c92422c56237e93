package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

func report(instance string, overruns uint64) table.Report {
	return table.Report{Instance: instance, Servers: []table.ServerReport{{ID: "a/app", Overruns: overruns, Misses: overruns / 2}}}
}

func always(string) bool { return true }

func TestCountersGoOnWhereTheyBeginAgain(t *testing.T) {
	t.Parallel()
	l := agent.NewLedger()
	expect := func(c *agent.Counted, want uint64) {
		t.Helper()
		if got := c.Servers["a/app"].Overruns; got != want {
			t.Errorf("%d overruns, want %d", got, want)
		}
	}
	expect(l.Follow(report("x", 5), nil, always), 5)
	expect(l.Follow(report("x", 7), nil, always), 7)
	expect(l.Follow(report("y", 9), nil, always), 16) // restarted, and already beyond what it was
	expect(l.Follow(report("y", 2), nil, always), 18) // the server was let go and came back
	file := filepath.Join(t.TempDir(), "deep", "counters.json")
	if err := l.Write(file); err != nil {
		t.Fatal(err)
	}
	next, err := agent.ReadLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	expect(next.Follow(report("y", 4), nil, always), 20) // the agent restarted, the fast path did not
	again, err := agent.ReadLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	expect(again.Follow(report("z", 4), nil, always), 22) // both did
}

// A ledger that was lost begins where RTNode.status ends, at the latest when that is heard of.
func TestALostLedgerBeginsWhereTheReportsEnd(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	said := map[string]v1alpha1.RTServerStatus{"a/app": {Overruns: 100, Misses: 40, Drift: 3, LastOverrunTime: ptr.To(metav1.NewMicroTime(at))}}
	l := agent.NewLedger()
	l.Follow(report("x", 5), nil, always)
	got := l.Follow(report("x", 8), said, always).Servers["a/app"]
	if got.Overruns != 100 || got.Misses != 40 || got.Drift != 3 || !got.LastOverrun.Equal(at) {
		t.Errorf("%+v", got)
	}
	// Its own words are not added again.
	said["a/app"] = v1alpha1.RTServerStatus{Overruns: 100, Misses: 40}
	if got := l.Follow(report("x", 9), said, always).Servers["a/app"]; got.Overruns != 101 {
		t.Errorf("%+v", got)
	}
}

// A file that no agent has written is not read to its end, though it would make sense.
func TestALedgerThatIsTooLongIsNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "counters.json")
	if err := os.WriteFile(path, append([]byte(`{"instance":"x"}`), bytes.Repeat([]byte(" "), 16<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := agent.ReadLedger(path)
	if err == nil || l == nil || l.Instance != "" {
		t.Errorf("it is read: %v", err)
	}
}

func TestServersThatAreGoneAreForgottenButNotTheirSum(t *testing.T) {
	t.Parallel()
	l := agent.NewLedger()
	l.Follow(report("x", 5), nil, always)
	got := l.Follow(table.Report{Instance: "x"}, nil, always)
	if got.Servers["a/app"].Overruns != 5 {
		t.Errorf("a server that waits for its container: %+v", got.Servers)
	}
	got = l.Follow(table.Report{Instance: "x"}, nil, func(string) bool { return false })
	if len(got.Servers) != 0 || got.All.Overruns != 5 {
		t.Errorf("%+v, in all %+v", got.Servers, got.All)
	}
	if _, err := agent.ReadLedger("/proc/self/nothing/x"); err != nil {
		t.Errorf("no file: %v", err)
	}
	if l, err := agent.ParseLedger([]byte("{")); err == nil || l == nil {
		t.Errorf("half a file: %v, %v", l, err)
	}
}

// Whatever restarts, totals are exactly what was counted, as long as agents read what their predecessors kept.
func TestNothingIsLostWhateverRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		file := filepath.Join(dir, rapid.StringMatching(`[a-z]{12}`).Draw(t, "file"))
		l, instance := agent.NewLedger(), "0"
		raw, truth := uint64(0), uint64(0)
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.Uint64Range(0, 5).Draw(t, "overruns")
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0: // the fast path restarts
				instance, raw = string(rune('a'+step)), 0
			case 1: // the agent restarts
				if err := l.Write(file); err != nil {
					t.Fatal(err)
				}
				var err error
				if l, err = agent.ReadLedger(file); err != nil {
					t.Fatal(err)
				}
			}
			raw, truth = raw+n, truth+n
			r := report(instance, raw)
			r.Events, r.Lost, r.Unseen = raw, raw, raw
			r.React.Count[3], r.React.SumUs = raw, int64(raw)*25
			got := l.Follow(r, nil, always)
			if got.Servers["a/app"].Overruns != truth || got.All.Overruns != truth || got.Events != truth || got.Lost != truth || got.Unseen != truth ||
				got.React.Count[3] != truth || got.React.SumUs != int64(truth)*25 {
				t.Fatalf("step %d: %+v, want %d", step, got, truth)
			}
		}
	})
}

func FuzzParseLedger(f *testing.F) {
	f.Add([]byte(`{"instance":"x","servers":{"a/app":{"total":{"Overruns":3}},"b/app":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, _ := agent.ParseLedger(data) // with an error it is a new one
		before := l.Follow(report("y", 0), nil, always).Servers["a/app"].Overruns
		if got := l.Follow(report("y", 3), nil, always).Servers["a/app"].Overruns; got != before+3 {
			t.Fatalf("%d after %d", got, before)
		}
	})
}
