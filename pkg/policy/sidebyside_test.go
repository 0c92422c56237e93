package policy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Whoever decides on migrations asks side by side, of one policy and one engine, also while policies come and go. The race detector sees to the rest.
func TestManyAskAtOnce(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, `{"allowed":true}`) //nolint:errcheck // the caller sees what comes
	}))
	t.Cleanup(server.Close)
	passing := named("passing", selecting(map[string]string{"app": "db"}))
	j, c := court(t, nil, passing,
		named("web", selecting(map[string]string{"app": "web"}), rule("no-cost", `trigger == "Cost" && pod.metadata.name == "web-0"`, v1alpha1.RuleDeny), asking(v1alpha1.PolicyEngine{URL: server.URL})))
	const many = 24
	var allowed atomic.Int64
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			q := question()
			q.Pod.Name, q.Pod.UID = fmt.Sprintf("web-%d", i), types.UID(fmt.Sprint(i))
			if d, err := j.Decide(t.Context(), q); err != nil {
				t.Error(err)
			} else if d.Allowed {
				allowed.Add(1)
			}
			if i == many/2 {
				if err := c.Delete(t.Context(), passing); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if allowed.Load() != many-1 || asked.Load() != many-1 {
		t.Errorf("%d of %d are allowed, want all but one; the engine was asked %d times", allowed.Load(), many, asked.Load())
	}
}
