package influx_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/influx"
)

// answers is a server that gives one answer to every question, and keeps the last.
func answers(t *testing.T, status int, body string) (*influx.Client, *http.Request) {
	t.Helper()
	last := &http.Request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		*last = *r.Clone(context.Background())
		last.Body = io.NopCloser(strings.NewReader(string(text)))
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return &influx.Client{URL: server.URL + "/", Org: "ke ti", Bucket: "b", Mode: influx.ModeV2, HTTP: server.Client(), Token: func() (string, error) { return "secret", nil }}, last
}

const twoTables = "#datatype,string,long,dateTime:RFC3339,double,string\r\n,result,table,_time,_value,node\r\n,_result,0,2026-01-02T03:04:05Z,0.5,edge-1\r\n" +
	",_result,0,2026-01-02T03:04:06Z,0.6,edge-2\r\n\r\n#datatype,string,long,double,string\r\n,result,table,value,node\r\n,_result,1,0.7,\"edge,3\"\r\n\r\n"

func TestQuery(t *testing.T) {
	t.Parallel()
	client, last := answers(t, 200, twoTables)
	rows, err := client.Query(t.Context(), "from(bucket: \"b\")")
	want := []map[string]string{
		{"": "", "result": "_result", "table": "0", "_time": "2026-01-02T03:04:05Z", "_value": "0.5", "node": "edge-1"},
		{"": "", "result": "_result", "table": "0", "_time": "2026-01-02T03:04:06Z", "_value": "0.6", "node": "edge-2"},
		{"": "", "result": "_result", "table": "1", "value": "0.7", "node": "edge,3"},
	}
	if err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("%v, %v", rows, err)
	}
	var asked map[string]any
	if err := json.NewDecoder(last.Body).Decode(&asked); err != nil || asked["query"] != "from(bucket: \"b\")" || asked["type"] != "flux" {
		t.Errorf("%v, %v", asked, err)
	}
	if last.URL.Path != "/api/v2/query" || last.URL.Query().Get("org") != "ke ti" || last.Header.Get("Authorization") != "Token secret" {
		t.Errorf("%s %s", last.URL, last.Header)
	}
}

func TestAnswersThatCannotBeUnderstood(t *testing.T) {
	t.Parallel()
	for want, body := range map[string]string{
		"says: failed to parse":    "#datatype,string,string\n,error,reference\n,failed to parse,897\n",
		"row of 2 columns":         ",result,node\n,x\n",
		"is no CSV":                ",a\n,\"b\n",
		"more than 100000 rows":    ",node\n" + strings.Repeat(",a\n", 100_002),
		"longer than 16777216 byt": ",node\n,\"" + strings.Repeat("a", 17<<20) + "\"\n",
	} {
		client, _ := answers(t, 200, body)
		_, err := client.Query(t.Context(), "x")
		var answer *influx.AnswerError
		if !errors.As(err, &answer) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Nothing of an error tells the token, and the words of the server are bounded.
func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	client, _ := answers(t, 404, "404 page\nnot found"+strings.Repeat("x", 5000))
	_, err := client.Query(t.Context(), "x")
	var status *influx.StatusError
	if !errors.As(err, &status) || status.Code != 404 || status.RetryAfter != "7" || len(status.Words) > 600 || !strings.HasPrefix(err.Error(), "InfluxDB answers 404: 404 page not found") {
		t.Errorf("%v", err)
	}
	client.URL = "http://127.0.0.1:1"
	if _, err = client.Query(t.Context(), "x"); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "org=") {
		t.Errorf("%v", err)
	}
	client.Token = func() (string, error) { return "", errors.New("no file") }
	if _, err = client.Query(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(twoTables)
	f.Add("")
	f.Add(",error,reference\n,a,1\n")
	f.Fuzz(func(t *testing.T, body string) {
		rows, err := influx.Parse(strings.NewReader(body))
		if err != nil && rows != nil {
			t.Errorf("rows beside %v", err)
		}
	})
}
