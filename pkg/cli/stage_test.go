package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

// aStage is a stage on an API with nothing in it; the cluster ends as watch tells.
func aStage(t *testing.T, out *bytes.Buffer, watch func(context.Context) error) stage {
	t.Helper()
	kinds := observe.Resources()
	untyped := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	recorder, err := observe.NewFor(fake.NewClientset(), untyped, observe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return stage{
		streams: Streams{In: strings.NewReader(""), Out: out}, recorder: recorder,
		cluster: &cluster{watch: watch}, frame: func() view.Frame { return view.Frame{State: recorder.State()} },
	}
}

func lives(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestPerformShowsAndReturnsWhatTheBodyReturns(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errors.New("the body's")} {
		var out bytes.Buffer
		err := aStage(t, &out, lives).perform(t.Context(), func(context.Context) error { return want })
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if !strings.Contains(out.String(), "0 nodes, 0 pods running") {
			t.Errorf("it shows %q", out.String())
		}
	}
}

func TestPerformEndsWhenTheClusterDies(t *testing.T) {
	t.Parallel()
	died := errors.New("the controller ended")
	var out bytes.Buffer
	err := aStage(t, &out, func(context.Context) error { return died }).perform(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, died) {
		t.Errorf("got %v", err)
	}
}

func TestPerformEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	err := aStage(t, &out, lives).perform(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
