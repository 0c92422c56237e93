package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// answers is a fast path that says the same to everything.
type answers struct {
	code int
	body []byte
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}

// FuzzAnswers: what is no JSON object is no report, what is one comes through as it was sent, and what refuses is told with its code and reason.
func FuzzAnswers(f *testing.F) {
	report, err := json.Marshal(table.Report{Instance: "i", Backend: "fifo", Servers: []table.ServerReport{{ID: "a", Cores: []int{1}, RunQueue: &table.Waits{P50Us: 2}}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(report), string(report[:len(report)/2]), string(report) + "{}", "null", "[]", "{}", "", "server \"a\": no such server\n"} {
		f.Add(http.StatusOK, []byte(seed))
		f.Add(http.StatusNotFound, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		c := &Client{http: http.Client{Transport: answers{code, body}}}
		if code >= 300 && code < 400 {
			return // net/http follows those itself
		}
		got, err := c.Report(t.Context())
		var refused *StatusError
		if is := errors.As(err, &refused); is != (code >= 400) || is && (refused.Code != code || refused.Reason != strings.TrimSpace(string(body))) {
			t.Fatalf("%d %q: %v", code, body, err)
		}
		if err != nil {
			return
		}
		var object map[string]any
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&object); err != nil {
			t.Fatalf("%q was taken for %+v", body, got)
		}
		data, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		c.http.Transport = answers{http.StatusOK, data}
		again, err := c.Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("%s, sent again %s, %v", data, twice, err)
		}
	})
}
