package migration_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
)

// meter plays a Prometheus that knows how much of the CPU of nodes is in use. Of memory it is a tenth.
type meter struct {
	url string

	mu    sync.Mutex
	cpu   map[string]float64
	asked int
}

// metered begins to measure, for the length of a spec.
func metered(cpu map[string]float64) *meter {
	m := &meter{cpu: cpu}
	server := httptest.NewServer(m)
	DeferCleanup(server.Close)
	m.url = server.URL
	return m
}

// flags have the controller move pods off nodes that are short of what is measured.
func (m *meter) flags() []string {
	return []string{
		"--resource-pressure=migrate", "--migration-check-interval=1", "--usage-source=prometheus",
		"--usage-prometheus-url=" + m.url, "--usage-prometheus-cpu-query=cpu", "--usage-prometheus-memory-query=memory",
	}
}

// becomes changes what is measured.
func (m *meter) becomes(cpu map[string]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cpu = cpu
}

// questions is how often it was asked.
func (m *meter) questions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// ServeHTTP implements http.Handler.
func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	type sample struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	list, now := []sample{}, float64(time.Now().UnixMilli())/1000
	for node, share := range m.cpu {
		if r.FormValue("query") == "memory" {
			share = 0.1
		}
		list = append(list, sample{map[string]string{"node": node}, [2]any{now, strconv.FormatFloat(share, 'f', -1, 64)}})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": list}})
}

// ledger plays an InfluxDB 1.x that keeps the lines that are written.
type ledger struct {
	url string

	mu    sync.Mutex
	lines []string
}

// keepsLines begins to take lines, for the length of a spec.
func keepsLines() *ledger {
	l := &ledger{}
	server := httptest.NewServer(l)
	DeferCleanup(server.Close)
	l.url = server.URL
	return l
}

// flags have the controller write there.
func (l *ledger) flags() []string {
	return []string{"--influx-write=v1", "--influx-url=" + l.url, "--influx-bucket=turtlebot"}
}

// ServeHTTP implements http.Handler.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/write" || r.URL.Query().Get("db") != "turtlebot" {
		http.Error(w, r.URL.String(), http.StatusNotFound)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.Split(strings.TrimSpace(string(body)), "\n")...)
	w.WriteHeader(http.StatusNoContent)
}

// written are the lines so far.
func (l *ledger) written() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}
