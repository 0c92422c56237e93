package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// fakeFastPath speaks the fast path's protocol over a real Unix socket. It obeys the last table, and overruns as
// the test says.
type fakeFastPath struct {
	testing.TB
	socket string
	server *http.Server

	mu      sync.Mutex
	report  table.Report
	table   table.Table
	applied int
	sets    []client.SetRequest
	pulled  int
	refuse  string
}

func newFastPath(t testing.TB) *fakeFastPath {
	dir, err := os.MkdirTemp("", "fastpath") // the path of a Unix socket is short
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeFastPath{TB: t, socket: filepath.Join(dir, "s")}
	t.Cleanup(func() { f.stop(); _ = os.RemoveAll(dir) })
	return f
}

// start begins a new instance, which remembers nothing.
func (f *fakeFastPath) start(instance string) {
	f.Helper()
	f.mu.Lock()
	f.report = table.Report{
		Instance: instance, Backend: "rtgroup", Guarantee: "hard within a tick", GranularityUs: 100, Realtime: true, Locked: true,
		Cores: []table.CoreReport{{ID: 1, CapacityPpm: 900_000}},
	}
	f.table = table.Table{}
	f.mu.Unlock()
	_ = os.Remove(f.socket)
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", f.socket)
	if err != nil {
		f.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+client.PathTable, f.put)
	mux.HandleFunc("GET "+client.PathReport, f.get)
	mux.HandleFunc("POST "+client.PathSet, f.set)
	f.server = &http.Server{Handler: mux} //nolint:gosec // a test's
	go f.server.Serve(listener)           //nolint:errcheck // it ends with stop
}

func (f *fakeFastPath) stop() {
	if f.server != nil {
		_ = f.server.Close()
	}
}

func (f *fakeFastPath) put(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != "" {
		http.Error(w, f.refuse, http.StatusBadRequest)
		return
	}
	data, err := io.ReadAll(r.Body)
	if err == nil {
		f.table = table.Table{}
		err = json.Unmarshal(data, &f.table)
	}
	if err == nil {
		err = f.table.Validate()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.applied++
	before := f.report.Servers
	f.report.Generation, f.report.Origin, f.report.Servers = f.table.Generation, f.table.Origin, nil
	for _, s := range f.table.Servers {
		report := table.ServerReport{ID: s.ID}
		for _, old := range before {
			if old.ID == s.ID {
				report = old
			}
		}
		report.BudgetUs, report.PeriodUs, report.Cores, report.LevelUs = 0, 0, nil, 0
		if s.Cgroup != "" {
			report.BudgetUs, report.PeriodUs, report.Cores, report.LevelUs = s.LeastUs, s.PeriodUs, []int{s.Core}, s.LeastUs
		}
		f.report.Servers = append(f.report.Servers, report)
	}
}

func (f *fakeFastPath) get(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pulled++
	_ = json.NewEncoder(w).Encode(f.report)
}

func (f *fakeFastPath) set(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var request client.SetRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.sets = append(f.sets, request)
}

// change has something happen to every server.
func (f *fakeFastPath) change(do func(s *table.ServerReport)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.report.Servers {
		do(&f.report.Servers[i])
	}
}

// see calls look while nothing changes.
func (f *fakeFastPath) see(look func(f *fakeFastPath)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look(f)
}

func (f *fakeFastPath) pulls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pulled
}
