package engine_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/examples/policy-engine/engine"
	client "github.com/mainspring-rt/mainspring/pkg/policy/engine"
)

func serving(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(engine.Default.Handler())
	t.Cleanup(server.Close)
	return server
}

func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// The exchange that is in the SDI Migration Service's documents.
func TestTheSeedsExchange(t *testing.T) {
	url := serving(t).URL
	status, body := call(t, http.MethodPost, url+"/api/v1/migration/policy", `{
	  "pod": {"name": "pod-name", "namespace": "default", "node_name": "source-node", "labels": {"app": "web"}},
	  "source_node": "source-node", "target_node": "target-node"}`)
	if status != http.StatusOK || !strings.HasPrefix(body, `{"allowed":true,"reason":"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := call(t, http.MethodGet, url+"/health", ""); status != http.StatusOK || body != "{\"status\":\"ok\"}\n" {
		t.Errorf("%d %s", status, body)
	}
}

func TestWhatCannotBeReadIsRefused(t *testing.T) {
	url := serving(t).URL
	for body, want := range map[string]int{
		``: http.StatusBadRequest, `[]`: http.StatusBadRequest, `{}`: http.StatusBadRequest, `{"pod":{"name":"a"},"source_node":"x"} {}`: http.StatusBadRequest,
		`{"pod":{"name":"` + strings.Repeat("a", 2<<20) + `"}}`: http.StatusRequestEntityTooLarge,
	} {
		if status, answer := call(t, http.MethodPost, url+engine.PathPolicy, body); status != want || strings.Contains(answer, "allowed") {
			t.Errorf("%.40s: %d %s", body, status, answer)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if status, _ := call(t, method, url+engine.PathPolicy, ""); status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, status)
		}
	}
}

// Mixed criticality and MALE, asked over HTTP by the client that the controller has.
func TestMixedCriticalityAndMALE(t *testing.T) {
	e, err := client.New(client.Config{URL: serving(t).URL, Clock: clock.RealClock{}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	safety := map[string]string{"male.keti.dev/accuracy": "0.6", "male.keti.dev/latency": "0.3"}
	mission := map[string]string{"male.keti.dev/accuracy": "0.6", "male.keti.dev/latency": "0.2", "male.keti.dev/energy": "0.2"}
	valued := map[string]string{"male.keti.dev/accuracy": "0.89", "male.keti.dev/energy": "0.9"}
	for i, c := range []struct {
		labels, male         map[string]string
		criticality, trigger string
		allowed              bool
		reason               string
	}{
		{nil, nil, "", "Cost", true, "criticality Low with a score of 0.00 may move for Cost"},
		{safety, nil, "", "Cost", false, "safety work"},
		{nil, safety, "", "ResourcePressure", false, "safety work"},
		{safety, nil, "", "", false, "not for ResourcePressure"},
		{safety, nil, "", "RTPressure", true, "for its own sake"},
		{nil, nil, "High", "Power", false, "safety work"},
		{mission, nil, "Low", "Cost", true, "criticality Middle with a score of 0.40"},
		{valued, nil, "", "Cost", false, "its score of 0.62 is at least 0.60"},
		{valued, nil, "", "ResourcePressure", true, "criticality Middle"},
		{valued, nil, "High", "Manual", false, "safety work"},
		{map[string]string{"male.keti.dev/energy": "much"}, nil, "", "Cost", false, "cannot be read"},
	} {
		q := client.Question{
			Pod: client.Pod{Name: "a", Namespace: "b", NodeName: "n1", Labels: c.labels, Male: c.male}, SourceNode: "n1", TargetNode: "n2",
			Trigger: c.trigger, Criticality: c.criticality, UID: types.UID(strconv.Itoa(i)), // each is another question
		}
		a, err := e.Ask(t.Context(), q)
		if err != nil || a.Allowed != c.allowed || !strings.Contains(a.Reason, c.reason) {
			t.Errorf("%+v: %+v, %v", c, a, err)
		}
	}
	a, err := e.Ask(t.Context(), client.Question{Pod: client.Pod{Name: "a"}, SourceNode: "n1", TargetNode: "n1"})
	if err != nil || a.Allowed {
		t.Errorf("to where it is: %+v, %v", a, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"pod":{"name":"a","labels":{"male.keti.dev/energy":"0.5"}},"source_node":"x","target_node":"y","trigger":"Cost"}`))
	server := engine.Default.Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, engine.PathPolicy, strings.NewReader(string(body))))
		if recorder.Code >= 500 {
			t.Errorf("%d for %q", recorder.Code, body)
		}
	})
}
