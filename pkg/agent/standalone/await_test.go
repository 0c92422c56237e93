package standalone_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// hasty is a clock on which every wait is over at once.
type hasty struct {
	clock.RealClock
	now time.Time
}

func (h *hasty) Now() time.Time                   { return h.now }
func (h *hasty) Since(at time.Time) time.Duration { return h.now.Sub(at) }
func (h *hasty) After(d time.Duration) <-chan time.Time {
	h.now = h.now.Add(d)
	over := make(chan time.Time, 1)
	over <- h.now
	return over
}

// reports serves one report after the other on a socket, the last for ever.
func reports(t *testing.T, all ...table.Report) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(all[next])
		next = min(next+1, len(all)-1)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return client.New(socket)
}

// Commands are started when every server has its budget, and never when one does not get it.
func TestBudgetsAreAwaited(t *testing.T) {
	report := func(backend string, servers ...table.ServerReport) table.Report {
		return table.Report{Backend: backend, Servers: servers}
	}
	has, waits := table.ServerReport{ID: "a", BudgetUs: 2000, LevelUs: 2000}, table.ServerReport{ID: "a", Waiting: true, Error: "it waits"}
	for name, c := range map[string]struct {
		reports []table.Report
		want    string // of the error
		longer  bool   // than a second
	}{
		"at once":                      {[]table.Report{report("rtgroup", has)}, "", false},
		"after a while":                {[]table.Report{report("rtgroup", waits), report("rtgroup", waits), report("rtgroup", has)}, "", false},
		"never":                        {[]table.Report{report("rtgroup", waits)}, `waiting 15s for budgets: server "a": it waits`, true},
		"refused":                      {[]table.Report{report("rtgroup", table.ServerReport{ID: "a", Error: "no room"})}, `server "a": no room`, false},
		"granted, but not in force":    {[]table.Report{report("rtgroup", table.ServerReport{ID: "a", LevelUs: 2000})}, `server "a": no budget is in force`, true},
		"less than low":                {[]table.Report{report("rtgroup", table.ServerReport{ID: "a", LevelUs: 100, BudgetUs: 100})}, `a budget of 100 us is granted; want at least 2000 us`, true},
		"not in the report":            {[]table.Report{report("rtgroup")}, `server "a": not in force`, false},
		"deadline: threads come later": {[]table.Report{report("deadline", table.ServerReport{ID: "a", LevelUs: 2000})}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hasty{now: time.Unix(1_000, 0)}
			_, err := standalone.AwaitBudgets(t.Context(), standalone.Options{Clock: h}, reports(t, c.reports...), table.Table{Servers: []table.Server{{ID: "a", LowUs: 2000}}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v; want %q", err, c.want)
			}
			if waited := h.now.Sub(time.Unix(1_000, 0)); waited > time.Second != c.longer || waited > 20*time.Second {
				t.Errorf("it waited %s", waited)
			}
		})
	}
}

// What an earlier run left holds room until it is put back: a file is admitted by what the node offers then.
func TestWhatIsOfferedIsAskedForWhenTheEarlierRunIsUndone(t *testing.T) {
	offers := func(ppm int64, servers ...table.ServerReport) table.Report {
		return table.Report{Backend: "rtgroup", Servers: servers, Cores: []table.CoreReport{{ID: 1, CapacityPpm: ppm}}}
	}
	before, restored := offers(300_000, table.ServerReport{ID: "left"}), table.Report{}
	got, err := standalone.Undo(t.Context(), reports(t, restored, offers(900_000)), before)
	if err != nil || len(got.Cores) != 1 || got.Cores[0].CapacityPpm != 900_000 {
		t.Errorf("it goes on with %+v, %v", got, err)
	}
}
