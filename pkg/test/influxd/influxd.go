// Package influxd runs a real InfluxDB 1.x for tests: Debian's package influxdb, installed or unpacked.
package influxd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// Variable names the program where it is not in PATH.
const Variable = "MAINSPRING_INFLUXD"

// Installed is the need of tests that use it.
var Installed = privileged.Need{What: "influxd (Debian's package influxdb, or its program in " + Variable + ")", Missing: func() error {
	_, err := program()
	return err
}}

func program() (string, error) {
	if path := os.Getenv(Variable); path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	return exec.LookPath("influxd")
}

// Server is one that runs.
type Server struct {
	testing.TB
	// URL without path.
	URL string

	address, dir string
	process      *exec.Cmd
}

// Start runs one with an empty database of that name until the test ends. In CI it must be installed; elsewhere the test
// skips aloud.
func Start(t testing.TB, database string) *Server {
	t.Helper()
	privileged.Require(t, Installed)
	s := &Server{TB: t, address: free(t), dir: t.TempDir()}
	s.URL = "http://" + s.address
	s.Run()
	t.Cleanup(s.Stop)
	s.Ask("", "CREATE DATABASE "+database)
	return s
}

// free is an address that nobody listens on.
func free(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

const configuration = `reporting-disabled = true
bind-address = "127.0.0.1:0"
[meta]
  dir = "%[1]s/meta"
[data]
  dir = "%[1]s/data"
  wal-dir = "%[1]s/wal"
[http]
  bind-address = "%[2]s"
  log-enabled = false
[monitor]
  store-enabled = false
[logging]
  level = "error"
`

// Run starts it, again after a Stop, with what it had.
func (s *Server) Run() {
	s.Helper()
	path, err := program()
	if err != nil {
		s.Fatal(err)
	}
	file := filepath.Join(s.dir, "influxdb.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, s.dir, s.address), 0o600); err != nil {
		s.Fatal(err)
	}
	s.process = exec.CommandContext(context.Background(), path, "-config", file)
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.process.Stderr = os.Stderr
	if err := s.process.Start(); err != nil {
		s.Fatalf("starting influxd: %v", err)
	}
	s.await()
}

// Stop ends it. What it has stored stays.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = s.process.Wait()
	s.process = nil
}

// await waits until it answers.
func (s *Server) await() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/ping", nil)
		if err != nil {
			s.Fatal(err)
		}
		if reply, err := http.DefaultClient.Do(request); err == nil {
			_ = reply.Body.Close()
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("influxd does not answer on %s", s.URL)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Row of an answer: columns and values as InfluxDB gives them.
type Row struct {
	Tags    map[string]string `json:"tags"`
	Columns []string          `json:"columns"`
	Values  [][]any           `json:"values"`
}

// Ask puts a question of InfluxQL and gives the rows of the answer.
func (s *Server) Ask(database, question string) []Row {
	s.Helper()
	rows, err := s.ask(database, question)
	if err != nil {
		s.Fatalf("%s: %v", question, err)
	}
	return rows
}

func (s *Server) ask(database, question string) ([]Row, error) {
	form := url.Values{"q": {question}, "db": {database}, "epoch": {"ns"}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL+"/query", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	var answer struct {
		Error   string `json:"error"`
		Results []struct {
			Error  string `json:"error"`
			Series []Row  `json:"series"`
		} `json:"results"`
	}
	decoder := json.NewDecoder(reply.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" || len(answer.Results) != 1 || answer.Results[0].Error != "" {
		return nil, errors.New("influxd: " + answer.Error + fmt.Sprint(answer.Results))
	}
	return answer.Results[0].Series, nil
}
