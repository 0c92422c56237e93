package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

// A start that hangs ends, and says what every goroutine waits for.
func TestAbandon(t *testing.T) {
	const hanging = "MAINSPRING_TEST_HANGING"
	if os.Getenv(hanging) != "" {
		abandon()
		select {} // what hangs
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAbandon$")
	command.Env = append(os.Environ(), hanging+"=1")
	text, err := command.CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 2 || !strings.Contains(string(text), "TestAbandon") {
		t.Errorf("%v; want exit code 2 and all stacks:\n%s", err, text)
	}
}

// A probe asks the socket, and nothing else happens: the program does not become real-time, nor touch any state.
func TestProbe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	args := []string{"--probe", "--socket=" + socket, "--state-dir=/nowhere/that/can/be"}
	if err := run(t.Context(), args); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("nobody listens: %v; want %v", err, client.ErrUnreachable)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	code := http.StatusNoContent
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != client.PathAlive {
			t.Errorf("it asks %s", r.URL.Path)
		}
		w.WriteHeader(code)
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	if err := run(t.Context(), args); err != nil {
		t.Errorf("it works: %v", err)
	}
	code = http.StatusServiceUnavailable
	var refused *client.StatusError
	if err := run(t.Context(), args); !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("it hangs: %v; want %d", err, code)
	}
}
