package engine_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"k8s.io/utils/clock"
)

// Whatever comes as an answer: it is a yes only if it says so.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{`{"allowed":true}`, `{"allowed":false,"reason":"x"}`, `{"allowed":true,"allowed":false}`, `{"allowed":"true"}`, `null`, "{\"allowed\":true,\"reason\":\"\xff\"}"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := &transport{answer: func(int32) (*http.Response, error) { return said(string(body)), nil }}
		a, err := over(t, s, clock.RealClock{}).Ask(t.Context(), question)
		if err != nil && a.Allowed || len(a.Reason) > 512 {
			t.Fatalf("%+v, %v", a, err)
		}
		parsed := map[string]any{}
		if err == nil && (json.Unmarshal(body, &parsed) != nil || parsed["allowed"] != a.Allowed) {
			t.Fatalf("%q is taken for %+v", body, a)
		}
	})
}
