package kube_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
)

// poolThatIs serves a NodePool whose condition Ready is what each look in turn finds, and the last from then on.
func poolThatIs(t *testing.T, ready ...string) (c client.Client, looks *int) {
	t.Helper()
	looks = new(int)
	get := func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
		status := ready[min(*looks, len(ready)-1)]
		*looks++
		if status == "" {
			return nil
		}
		condition := map[string]any{"type": "Ready", "status": status, "message": "class x is missing"}
		return unstructured.SetNestedSlice(obj.(*unstructured.Unstructured).Object, []any{condition}, "status", "conditions")
	}
	return fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{Get: get}).Build(), looks
}

func TestAwaitPoolsWaitsForTheConditionReady(t *testing.T) {
	t.Parallel()
	pool, class := kube.Object("karpenter.sh/v1", "NodePool", "", "general"), kube.Object("example.com/v1", "Class", "", "x")
	c, looks := poolThatIs(t, "", "Unknown", "False", "True")
	if err := kube.AwaitPools(t.Context(), c, clock.RealClock{}, class, pool); err != nil || *looks != 4 {
		t.Errorf("%d looks, %v; want 4", *looks, err)
	}
	c, _ = poolThatIs(t, "False")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := kube.AwaitPools(ctx, c, clock.RealClock{}, pool)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "its condition Ready is False: class x is missing") {
		t.Errorf("got %v", err)
	}
}
