package environment

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestServiceLeadsToAReplicaThatListens(t *testing.T) {
	s, err := newService(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func() (string, error) {
		resp, err := client.Get("http://" + s.listener.Addr().String())
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return string(answer), err
	}
	first, second := replica(t, s, "first"), replica(t, s, "second")
	for _, step := range []struct {
		end  *httptest.Server
		want string
	}{{nil, "first"}, {first, "second"}, {second, ""}} {
		if step.end != nil {
			step.end.Close()
		}
		answer, err := ask()
		if answer != step.want || (err == nil) != (step.want != "") {
			t.Errorf("%q answered (%v), want %q", answer, err, step.want)
		}
	}
}

// replica listens for the service and answers with its name.
func replica(t *testing.T, s *service, name string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(server.Close)
	s.add(server.Listener.Addr().(*net.TCPAddr).Port)
	return server
}
