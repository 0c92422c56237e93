package frontdoor_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
)

const id64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestSetRTIsReadStrictly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, want string }{
		{"the seed's", `{"container_id":"containerd://` + id64 + `","period":20000,"runtime":4000,"core":"0"}`, ""},
		{"without a core", `{"container_id":"` + id64 + `","period":20000,"runtime":4000}`, ""},
		{"null core", `{"container_id":"` + id64 + `","period":20000,"runtime":4000,"core":null}`, ""},
		{"a further field", `{"container_id":"` + id64 + `","period":20000,"runtime":4000,"pod":"x"}`, ""},
		{"nothing", ``, "not a JSON object"},
		{"an array", `[]`, "not a JSON object"},
		{"half", `{"container_id":`, "not JSON"},
		{"two", `{} {}`, "follows"},
		{"no id", `{"period":20000,"runtime":4000}`, "container_id is missing or empty"},
		{"empty id", `{"container_id":"","period":20000,"runtime":4000}`, "container_id is missing or empty"},
		{"short id", `{"container_id":"` + id64[:12] + `","period":20000,"runtime":4000}`, "all 64"},
		{"no id behind the runtime", `{"container_id":"containerd://","period":20000,"runtime":4000}`, "all 64"},
		{"a path", `{"container_id":"../../../../` + id64[:52] + `","period":20000,"runtime":4000}`, "all 64"},
		{"unknown runtime", `{"container_id":"lxc://` + id64 + `","period":20000,"runtime":4000}`, "another runtime"},
		{"other letter case", `{"Container_ID":"` + id64 + `","period":20000,"runtime":4000}`, "container_id is missing"},
		{"twice", `{"container_id":"` + id64 + `","period":20000,"runtime":4000,"runtime":8000}`, "duplicate"},
		{"misspelt", `{"container_id":"` + id64 + `","period":20000,"runtme":4000}`, "runtime is missing"},
		{"a string", `{"container_id":"` + id64 + `","period":"20000","runtime":4000}`, "does not fit"},
		{"a fraction", `{"container_id":"` + id64 + `","period":20000.5,"runtime":4000}`, "does not fit"},
		{"too large for the type", `{"container_id":"` + id64 + `","period":99999999999999999999,"runtime":4000}`, "does not fit"},
		{"no period", `{"container_id":"` + id64 + `","runtime":4000}`, "period is missing"},
		{"period 0", `{"container_id":"` + id64 + `","period":0,"runtime":4000}`, "period is 0; want 1 to 10000000"},
		{"negative runtime", `{"container_id":"` + id64 + `","period":20000,"runtime":-1}`, "runtime is -1; want 1 to period, 20000"},
		{"more than the period", `{"container_id":"` + id64 + `","period":20000,"runtime":20001}`, "runtime is 20001"},
		{"long core", `{"container_id":"` + id64 + `","period":20000,"runtime":1,"core":"` + strings.Repeat("1,", 40) + `"}`, "core has 80 characters"},
	} {
		got, err := frontdoor.ParseSetRT([]byte(c.body))
		expectProblem(t, c.name, err, c.want)
		if err == nil && (got.ContainerID.ID != id64 || got.PeriodUs != 20000 || got.RuntimeUs != 4000) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestOverrunIsReadStrictly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, want string }{
		{"the seed's", `{"node_name":"worker1","container_id":"` + id64 + `","timestamp":1234567890}`, ""},
		{"with the runtime", `{"node_name":"worker1","container_id":"cri-o://` + id64 + `","timestamp":18446744073709551615}`, ""},
		{"empty id", `{"node_name":"worker1","container_id":"","timestamp":1}`, "container_id is missing or empty"},
		{"no node", `{"container_id":"` + id64 + `","timestamp":1}`, "node_name is missing"},
		{"long node", `{"node_name":"` + strings.Repeat("n", 254) + `","container_id":"` + id64 + `","timestamp":1}`, "254 characters"},
		{"no timestamp", `{"node_name":"worker1","container_id":"` + id64 + `"}`, "timestamp is missing"},
		{"timestamp 0", `{"node_name":"worker1","container_id":"` + id64 + `","timestamp":0}`, "timestamp is missing or 0"},
		{"negative timestamp", `{"node_name":"worker1","container_id":"` + id64 + `","timestamp":-1}`, "does not fit"},
	} {
		_, err := frontdoor.ParseOverrun([]byte(c.body))
		expectProblem(t, c.name, err, c.want)
	}
}

func expectProblem(t *testing.T, name string, err error, want string) {
	t.Helper()
	problem := (*frontdoor.Problem)(nil)
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (!errors.As(err, &problem) || problem.Code != http.StatusBadRequest || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want a bad request with %q", name, err, want)
	}
}

func TestContainersAreTheSameOnlyByTheirWholeID(t *testing.T) {
	t.Parallel()
	bare, of := frontdoor.ContainerID{ID: id64}, frontdoor.ContainerID{Runtime: "containerd", ID: id64}
	for _, c := range []struct {
		id     frontdoor.ContainerID
		status string
		want   bool
	}{
		{bare, "containerd://" + id64, true}, {bare, "cri-o://" + id64, true}, {of, "containerd://" + id64, true},
		{of, "cri-o://" + id64, false}, {bare, id64, false}, {bare, "", false}, {bare, "containerd://", false},
		{bare, "containerd://" + id64 + "0", false}, {frontdoor.ContainerID{}, "containerd://", false}, {frontdoor.ContainerID{}, "", false},
	} {
		if got := c.id.Is(c.status); got != c.want {
			t.Errorf("%+v is %q: %t", c.id, c.status, got)
		}
	}
}

func FuzzParseSetRT(f *testing.F) {
	f.Add([]byte(`{"container_id":"containerd://` + id64 + `","period":20000,"runtime":4000,"core":"0-1"}`))
	f.Add([]byte(`{"container_id":null,"period":1e3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := frontdoor.ParseSetRT(body)
		if problem := (*frontdoor.Problem)(nil); err != nil && !errors.As(err, &problem) {
			t.Fatalf("%T is no Problem", err)
		}
		if err == nil && (len(r.ContainerID.ID) != 64 || r.RuntimeUs < 1 || r.RuntimeUs > r.PeriodUs || r.PeriodUs > 10_000_000) {
			t.Fatalf("%q is read as %+v", body, r)
		}
	})
}

func FuzzParseOverrun(f *testing.F) {
	f.Add([]byte(`{"node_name":"worker1","container_id":"` + id64 + `","timestamp":1234567890}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := frontdoor.ParseOverrun(body)
		if problem := (*frontdoor.Problem)(nil); err != nil && !errors.As(err, &problem) {
			t.Fatalf("%T is no Problem", err)
		}
		if err == nil && (len(r.ContainerID.ID) != 64 || r.Node == "" || r.Timestamp == 0) {
			t.Fatalf("%q is read as %+v", body, r)
		}
	})
}
