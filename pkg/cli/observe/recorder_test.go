package observe_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

// api is a recorder on an API without a cluster behind it.
type api struct {
	typed    *fake.Clientset
	untyped  *dynamicfake.FakeDynamicClient
	clock    *testingclock.FakeClock
	recorder *observe.Recorder
	pods     chan string
}

func newAPI(t *testing.T) *api {
	t.Helper()
	kinds := observe.Resources()
	a := &api{
		typed: fake.NewClientset(), untyped: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		clock: testingclock.NewFakeClock(start), pods: make(chan string, 100),
	}
	var err error
	a.recorder, err = observe.NewFor(a.typed, a.untyped, observe.Options{Clock: a.clock, OnPod: func(_, after *corev1.Pod) {
		if after != nil {
			a.pods <- after.Name
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.recorder.Run(ctx, ready) }()
	<-ready
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

// until steps the clock until the recorder's state holds.
func (a *api) until(t *testing.T, holds func(observe.State) bool) {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { done <- a.recorder.Until(ctx, holds) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("the state never holds: %+v", a.recorder.State())
			}
			return
		default:
			a.clock.Step(500 * time.Millisecond)
		}
	}
}

func (a *api) createClaim(t *testing.T, name string) {
	t.Helper()
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"karpenter.sh/nodepool": "general", "node.kubernetes.io/instance-type": "c-4x"}},
	}}
	if _, err := a.untyped.Resource(observe.NodeClaims).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestRecorderFollowsTheAPI(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.createClaim(t, "general-1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "1"}}
	if _, err := a.typed.CoreV1().Pods("ns").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.until(t, func(s observe.State) bool { return len(s.Nodes) == 1 && s.Pending == 1 })
	if got := <-a.pods; got != "p" {
		t.Errorf("OnPod was told of %q", got)
	}
	// A sample is taken with the clock, so the state may be seen before any sample shows it.
	a.until(t, func(observe.State) bool {
		return a.recorder.Series().Peak(func(s observe.Sample) float64 { return float64(s.Count()) }) == 1
	})
	if err := a.untyped.Resource(observe.NodeClaims).Delete(t.Context(), "general-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.typed.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.until(t, func(s observe.State) bool { return len(s.Nodes) == 0 && s.Pending == 0 })
	if machines := a.recorder.Machines(); len(machines) != 1 || machines[0].Gone.IsZero() {
		t.Errorf("the ledger has %+v", machines)
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.recorder.Until(ctx, func(observe.State) bool { return false }); err == nil {
		t.Error("it holds")
	}
}

func TestMarksAndDecisionsOfTheCaller(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.recorder.Mark("1")
	a.recorder.Tell(observe.Decision{Kind: observe.Trouble, Text: "x", Count: 1})
	if marks := a.recorder.Marks(); len(marks) != 1 || !marks[0].At.Equal(start) {
		t.Errorf("marks %+v", marks)
	}
	if decisions := a.recorder.Decisions(5); len(decisions) != 1 || decisions[0].Text != "x" {
		t.Errorf("decisions %+v", decisions)
	}
}
