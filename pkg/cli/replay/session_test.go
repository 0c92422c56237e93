package replay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/replay"
)

// Pods that come before the NodePools are ready wait for the next look at them, so nothing is created before. There is no
// API server behind the configuration: creating anything would fail with another error.
func TestNothingIsPlayedBeforeTheNodePoolsAreReady(t *testing.T) {
	t.Parallel()
	prepared := replay.Prepared{Jobs: make([]replay.Job, 1)}
	prepared.Pools = append(prepared.Pools, kube.Object("karpenter.sh/v1", "NodePool", "", "general"))
	objects := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	session, err := replay.NewSession(&rest.Config{Host: "http://127.0.0.1:1"}, objects, clock.RealClock{}, prepared, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = session.Perform(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for NodePool general to be ready") {
		t.Errorf("got %v", err)
	}
}
