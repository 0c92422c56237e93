package fastpath_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// tables are what the fuzz tests begin with.
func tables(f *testing.F) {
	f.Helper()
	whole, err := json.Marshal(tableOf(1, high("a", "/a", 0), high("b", "/b", 0)))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(whole), string(whole[:len(whole)/2]), string(whole) + "{}", "null", "[]", "{}", "", `{"servers":[{}]}`, `{"restoring":true}`} {
		f.Add([]byte(seed))
	}
}

// FuzzDecode: what is not one JSON object as a whole, of fields that a table, a budget by hand or a server has, is refused.
func FuzzDecode(f *testing.F) {
	tables(f)
	for _, seed := range []string{`{"server":"a","runtimeUs":3000,"core":1}`, `{"server":"a","core":null}{}`, `{"id":"a","cgroup":"/a","levelsUs":[1]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, into := range []any{&table.Table{}, &client.SetRequest{}, &table.Server{}} {
			err := fastpath.Decode(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, client.PathTable, bytes.NewReader(body)), into)
			var object map[string]any
			if err == nil && (json.Unmarshal(body, &object) != nil || object == nil) {
				t.Fatalf("%q was taken for %+v", body, into)
			}
		}
	})
}

// FuzzAgain: whatever the environment is, the fast path that is started again has its settings of the Go runtime where they count, and all else as it was.
func FuzzAgain(f *testing.F) {
	f.Add("A=1\nGODEBUG=x=1\nGODEBUG=asyncpreemptoff=0\nB")
	f.Add("GODEBUG=,asyncpreemptoff=1,gcstoptheworld=2,gcstoptheworld=0\n\nGODEBUG")
	f.Add("")
	const ours = "asyncpreemptoff=1,gcstoptheworld=2"
	f.Fuzz(func(t *testing.T, environment string) {
		given := strings.Split(environment, "\n")
		is := func(s string) bool { return strings.HasPrefix(s, "GODEBUG=") }
		got := fastpath.Again(given)
		last := len(got) - 1
		if got[last] != "MAINSPRING_FASTPATH_REALTIME=1" {
			t.Fatalf("%q ends with %q", given, got[last])
		}
		got = got[:last]
		at := slices.IndexFunc(got, is)
		if at < 0 || got[at] != "GODEBUG="+ours && !strings.HasSuffix(got[at], ","+ours) {
			t.Fatalf("%q becomes %q", given, got)
		}
		if got = slices.Delete(got, at, at+1); !slices.Equal(got, slices.DeleteFunc(given, is)) {
			t.Fatalf("of %q are left %q", given, got)
		}
	})
}

// FuzzKeptTable: of a table that was kept, or what became of it, only one that makes sense counts.
func FuzzKeptTable(f *testing.F) {
	tables(f)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "table.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if !fastpath.Governed(dir) {
			return
		}
		var read table.Table
		if err := json.Unmarshal(data, &read); err != nil || read.Validate() != nil || len(read.Servers) == 0 {
			t.Fatalf("%q was believed", data)
		}
	})
}
