package usage_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

func vector(samples ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

func sample(label, name, value string) string {
	return fmt.Sprintf(`{"metric":{%q:%q},"value":[%d.5,%q]}`, label, name, at.Unix(), value)
}

func prometheus(s *httptest.Server) *usage.Prometheus {
	return &usage.Prometheus{URL: s.URL + "/", CPUQuery: "cpu", MemoryQuery: "memory", MaxAge: 90 * time.Second, HTTP: s.Client()}
}

func TestPrometheusReadsNodesByNameAndAddress(t *testing.T) {
	t.Parallel()
	s := server(t, 200, vector(sample("node", "a", "0.5"), sample("instance", "10.0.0.2:9100", "0.6"), sample("instance", "c:9100", "NaN"), sample("node", "other", "1")),
		vector(sample("nodename", "a", "0.7"), sample("kubernetes_node", "d", "0.8")))
	got, err := prometheus(s).Nodes(t.Context(), []*corev1.Node{node("a"), node("b", "10.0.0.2"), node("c"), node("d", "10.0.0.9"), node("e")})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, map[string]string{"a": "50/70", "b": "60/?", "c": "NaN/?", "d": "?/80"})
	if want := at.Add(500 * time.Millisecond); !got["a"].CPU.At.Equal(want) {
		t.Errorf("it is of %s, want %s", got["a"].CPU.At, want)
	}
}

func TestPrometheusErrorsAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status      int
		body        string
		kind, words string
	}{
		"a query that is no PromQL": {400, `{"status":"error","errorType":"bad_data","error":"parse error"}`, usage.KindRefused, "bad_data: parse error"},
		"no credentials":            {401, "go away", usage.KindDenied, "Unauthorized"},
		"a proxy":                   {502, "<html>", usage.KindUnavailable, "Bad Gateway"},
		"no such path":              {404, "", usage.KindNotInstalled, "Not Found"},
		"a query that takes long":   {503, `{"status":"error","errorType":"timeout","error":"query timed out"}`, usage.KindUnavailable, "query timed out"},
		"a matrix":                  {200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, usage.KindBadAnswer, "instant vector"},
		"a scalar":                  {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, usage.KindBadAnswer, "gives a scalar"},
		"no JSON":                   {200, "ok", usage.KindBadAnswer, "invalid character"},
		"an error with 200":         {200, `{"status":"error"}`, usage.KindBadAnswer, `status is "error"`},
		"no label":                  {200, vector(sample("job", "a", "1")), usage.KindBadAnswer, "no label node"},
		"no number":                 {200, vector(sample("node", "a", "much")), usage.KindBadAnswer, `"much"`},
		"a value that is a number":  {200, vector(`{"metric":{"node":"a"},"value":[1,2]}`), usage.KindBadAnswer, "number as text"},
		"two values":                {200, vector(sample("node", "a", "1"), sample("instance", "a:1", "1")), usage.KindBadAnswer, "more than one value for node a"},
		"too much":                  {200, strings.Repeat(" ", 17<<20), usage.KindBadAnswer, "longer than"},
	} {
		_, err := prometheus(server(t, c.status, c.body)).Nodes(t.Context(), []*corev1.Node{node("a")})
		t.Run(name, func(t *testing.T) { expectError(t, err, usage.SourcePrometheus, c.kind, c.words) })
	}
	gone := server(t, 200, "")
	gone.Close()
	_, err := prometheus(gone).Nodes(t.Context(), nil)
	expectError(t, err, usage.SourcePrometheus, usage.KindUnreachable, "refused")
}

func FuzzPrometheus(f *testing.F) {
	f.Add(vector(sample("node", "a", "0.5")))
	f.Add(`{"status":"success","data":{"resultType":"vector","result":[{"value":[]}]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		reply := func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		p := &usage.Prometheus{URL: "http://p", HTTP: &http.Client{Transport: transport(reply)}}
		if got, err := p.Nodes(t.Context(), []*corev1.Node{node("a")}); (err == nil) == (got == nil) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var promServer = privileged.Need{What: "prometheus (Debian's package prometheus)", Missing: func() error {
	_, err := exec.LookPath("prometheus")
	return err
}}

// startPrometheus runs a real one that reads a page each 100 ms.
func startPrometheus(t *testing.T, page func() string) string {
	t.Helper()
	privileged.Require(t, promServer)
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page()) }))
	t.Cleanup(exporter.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	text := fmt.Sprintf("global: {scrape_interval: 100ms, scrape_timeout: 100ms}\nscrape_configs: [{job_name: nodes, static_configs: [{targets: [%q]}]}]\n", exporter.Listener.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return "http://" + address
}

// A sample that Prometheus still has, but that is older than $age, is not given.
func TestARealPrometheusGivesNoOldSamples(t *testing.T) {
	t.Parallel()
	url := startPrometheus(t, func() string {
		old := time.Now().Add(-time.Minute).UnixMilli()
		return fmt.Sprintf("cpu{node=\"a\"} 0.5\ncpu{node=\"old\"} 0.6 %d\nmemory{node=\"a\"} 0.7\nmemory{node=\"old\"} 0.8\n", old)
	})
	p := &usage.Prometheus{URL: url, CPUQuery: "last_over_time(cpu[$age])", MemoryQuery: "max by (node) (memory)", MaxAge: 5 * time.Minute, HTTP: http.DefaultClient}
	nodes := []*corev1.Node{node("a"), node("old")}
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := p.Nodes(t.Context(), nodes)
		if err == nil && show(got["a"]) == "50/70" && show(got["old"]) == "60/80" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v, %v", got, err)
		}
		time.Sleep(20 * time.Millisecond) // asks again
	}
	p.MaxAge = 10 * time.Second
	got, err := p.Nodes(t.Context(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, map[string]string{"a": "50/70", "old": "?/80"})
	for _, query := range []string{usage.DefaultCPUQuery, usage.DefaultMemoryQuery} {
		p.CPUQuery = query
		if _, err := p.Nodes(t.Context(), nodes); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	p.CPUQuery = "sum("
	_, err = p.Nodes(t.Context(), nodes)
	expectError(t, err, usage.SourcePrometheus, usage.KindRefused, "parse error")
}
