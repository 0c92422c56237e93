package usage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/usage"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func now() time.Time { return at }

// node has 4 cores and 8Gi, of which 3.2 cores and 4Gi are allocatable.
func node(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3200m"), corev1.ResourceMemory: resource.MustParse("4Gi")},
	}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// show is "CPU/memory" in percent, ? for what is unknown.
func show(u usage.Usage) string {
	one := func(v usage.Value) string {
		if !v.Known() {
			return "?"
		}
		return fmt.Sprintf("%.0f", v.Ratio*100)
	}
	return one(u.CPU) + "/" + one(u.Memory)
}

func expect(t *testing.T, got map[string]usage.Usage, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, w := range want {
		if s := show(got[name]); s != w {
			t.Errorf("node %s is %s, want %s", name, s, w)
		}
	}
}

// expectError wants an error of that kind, with the words.
func expectError(t *testing.T, err error, source, kind, words string) {
	t.Helper()
	var own *usage.Error
	if !errors.As(err, &own) || own.Source != source || own.Kind != kind || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want one of %s: %s with %q", err, source, kind, words)
	}
}

// server answers every request so, in turn; the last answer again and again.
func server(t *testing.T, status int, bodies ...string) *httptest.Server {
	t.Helper()
	next := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, bodies[min(next, len(bodies)-1)])
		next++
	}))
	t.Cleanup(s.Close)
	return s
}

// fixed is a source that has its answer.
type fixed struct {
	answer map[string]usage.Usage
	err    error
	wait   bool
}

func (f fixed) Name() string { return usage.SourcePrometheus }

func (f fixed) Nodes(ctx context.Context, _ []*corev1.Node) (map[string]usage.Usage, error) {
	if f.wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.answer, f.err
}

func TestWhatIsOldOrNoNumberIsUnknownAndNeverZero(t *testing.T) {
	t.Parallel()
	value := func(ratio float64, age time.Duration) usage.Value {
		return usage.Value{Ratio: ratio, At: at.Add(-age)}
	}
	got, err := usage.Read(t.Context(), fixed{answer: map[string]usage.Usage{
		"fresh":   {CPU: value(0.5, 90*time.Second), Memory: value(1.2, 0)},
		"old":     {CPU: value(0.5, 90*time.Second+1), Memory: value(0.9, 0)},
		"ahead":   {CPU: value(0.5, -91*time.Second), Memory: value(0.9, -time.Second)},
		"numbers": {CPU: value(math.NaN(), 0), Memory: value(math.Inf(1), 0)},
		"below":   {CPU: value(-0.1, 0)},
	}}, nil, now, usage.Limits{Timeout: time.Second, MaxAge: 90 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, map[string]string{"fresh": "50/120", "old": "?/90", "ahead": "?/90", "numbers": "?/?", "below": "?/?"})
}

func TestASourceThatDoesNotAnswerIsLeftInTime(t *testing.T) {
	t.Parallel()
	_, err := usage.Read(t.Context(), fixed{wait: true}, nil, now, usage.Limits{Timeout: time.Millisecond, MaxAge: time.Second})
	expectError(t, err, usage.SourcePrometheus, usage.KindTimeout, "reading usage from prometheus: Timeout")
}
