package usage_test

import (
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/influx"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

func flux(s *httptest.Server) *usage.Influx {
	return &usage.Influx{CPUQuery: "cpu", MemoryQuery: "memory", Now: now,
		Client: &influx.Client{URL: s.URL, Org: "o", HTTP: s.Client(), Token: func() (string, error) { return "secret", nil }}}
}

func TestInfluxReadsNodeAndValue(t *testing.T) {
	t.Parallel()
	s := server(t, 200, ",result,table,node,value\n,_result,0,a,0.5\n,_result,0,nobody,0.9\n", ",result,table,_time,node,_value\n,_result,0,2026-01-02T03:03:05Z,a,0.7\n")
	got, err := flux(s).Nodes(t.Context(), []*corev1.Node{node("a"), node("b")})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, map[string]string{"a": "50/70"})
	if !got["a"].CPU.At.Equal(at) || !got["a"].Memory.At.Equal(at.Add(-time.Minute)) {
		t.Errorf("they are of %s and %s", got["a"].CPU.At, got["a"].Memory.At)
	}
}

func TestInfluxErrorsAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status      int
		body        string
		kind, words string
	}{
		{404, "404 page not found", usage.KindNotInstalled, "404 page not found"}, // 1.x
		{401, `{"code":"unauthorized"}`, usage.KindDenied, "401"},
		{400, `{"message":"compilation failed"}`, usage.KindRefused, "compilation failed"},
		{200, ",error,reference\n,failed,1\n", usage.KindBadAnswer, "says: failed"},
		{200, ",node\n,a\n", usage.KindBadAnswer, "row 1: want columns node and value"},
		{200, ",node,value\n,a,x\n", usage.KindBadAnswer, "row 1: value"},
		{200, ",node,value,_time\n,a,1,yesterday\n", usage.KindBadAnswer, "row 1: _time"},
		{200, ",node,value\n,a,1\n,a,1\n", usage.KindBadAnswer, "more than one value for node a"},
	} {
		_, err := flux(server(t, c.status, c.body)).Nodes(t.Context(), []*corev1.Node{node("a")})
		expectError(t, err, usage.SourceInflux, c.kind, c.words)
	}
}
