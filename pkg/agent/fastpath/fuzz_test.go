package fastpath_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// FuzzDecode: what is not one JSON object as a whole, of fields that a table has, is refused.
func FuzzDecode(f *testing.F) {
	tables(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		var read table.Table
		err := fastpath.Decode(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, client.PathTable, bytes.NewReader(body)), &read)
		var object map[string]any
		if err == nil && (json.Unmarshal(body, &object) != nil || object == nil) {
			t.Fatalf("%q was taken for %+v", body, read)
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
