package fastpath_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

// served is an engine behind its socket.
func served(t *testing.T, k *kernel) (*node, *client.Client, string) {
	t.Helper()
	n, socket := start(t, k, t.TempDir()), filepath.Join(t.TempDir(), "s")
	return n, serve(t, n, socket), socket
}

// serve has an engine answer on a socket until the test ends.
func serve(t *testing.T, n *node, socket string) *client.Client {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended, listens := make(chan error, 1), make(chan struct{})
	go func() { ended <- n.Serve(ctx, socket, func() { close(listens) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the socket ended with %v", err)
		}
	})
	select {
	case <-listens:
	case err := <-ended:
		ended <- nil
		t.Fatalf("the socket does not answer: %v", err)
	}
	return client.New(socket)
}

func TestTheSocketCarriesEverything(t *testing.T) {
	k := newKernel("/a")
	_, c, socket := served(t, k)
	ctx := t.Context()
	if err := c.Apply(ctx, tableOf(2, high("a", "/a", 0))); err != nil {
		t.Fatal(err)
	}
	report, err := c.Report(ctx)
	if err != nil || report.Generation != 2 || report.Servers[0].BudgetUs != 2_000 {
		t.Fatalf("%v %+v", err, report)
	}
	if err := c.Set(ctx, client.SetRequest{Server: "a", RuntimeUs: 2_500}); err != nil {
		t.Error(err)
	}
	if samples, err := c.Samples(ctx); err != nil || len(samples) != 0 {
		t.Errorf("%v %v", samples, err)
	}
	first, err := c.Room(ctx, high("b", "/b", 0))
	if err != nil || first.RuntimeUs != 2_000 || first.PeriodUs != 10_000 {
		t.Errorf("%+v %v", first, err)
	}
	if !slices.Contains(k.log, "room for b in /b") {
		t.Errorf("the backend was not told whose room it is: %q", k.log)
	}
	if err := c.Restore(ctx); err != nil || k.restored != 1 {
		t.Errorf("%v, restored %d times", err, k.restored)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is open to others: %v %v", info.Mode(), err)
	}
}

func TestTheSocketSaysWhatIsWrong(t *testing.T) {
	k := newKernel("/a")
	k.roomErr = actuator.ErrNoRoom
	_, c, socket := served(t, k)
	var refused *client.StatusError
	bad := high("a", "/a", 0)
	bad.PeriodUs, bad.Mode = -1, "none"
	if err := c.Apply(t.Context(), tableOf(1, bad)); !errors.As(err, &refused) || refused.Code != 400 ||
		!strings.Contains(refused.Reason, `mode "none"`) || !strings.Contains(refused.Reason, "-1") {
		t.Errorf("want 400 with every fault: %v", err)
	}
	if err := c.Set(t.Context(), client.SetRequest{Server: "x"}); !errors.As(err, &refused) || refused.Code != 404 {
		t.Errorf("want 404: %v", err)
	}
	if _, err := c.Room(t.Context(), high("a", "/a", 0)); !errors.As(err, &refused) || refused.Code != 409 {
		t.Errorf("want 409: %v", err)
	}
	for name, body := range map[string]string{
		"not JSON":       "{",
		"unknown fields": `{"generation":1,"wishes":[]}`,
		"too long":       `{"servers":[{"id":"` + strings.Repeat("a", client.MaxBody) + `"}]}`,
	} {
		if code, text := put(t, socket, body); code != 400 || text == "" {
			t.Errorf("%s: %d %q; want 400 with a reason", name, code, text)
		}
	}
	if len(k.log) != 0 {
		t.Errorf("something was done: %v", k.log)
	}
}

func TestNoFastPathAnswers(t *testing.T) {
	_, err := client.New(filepath.Join(t.TempDir(), "none")).Report(t.Context())
	if !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("want ErrUnreachable: %v", err)
	}
}

// put sends a body as a table.
func put(t *testing.T, socket, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://x"+client.PathTable, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
