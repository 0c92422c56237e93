package demo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/demo"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

// teller tells a story on an API with nothing in it.
func teller(t *testing.T, limit time.Duration, story ...demo.Chapter) *demo.Teller {
	t.Helper()
	kinds := observe.Resources()
	untyped := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	recorder, err := observe.NewFor(fake.NewClientset(), untyped, observe.Options{Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := recorder.Run(ctx, ready); err != nil {
			t.Error(err)
		}
	}()
	<-ready
	t.Cleanup(func() { cancel(); <-ended })
	return demo.NewTeller(nil, recorder, clock.RealClock{}, story, limit)
}

func nothing(context.Context, client.Client, observe.State, *demo.Memory) error { return nil }

func good(title string) demo.Chapter {
	return demo.Chapter{Title: title, Limit: time.Minute, Act: nothing, Goal: func(demo.View, demo.Memory) (bool, string) { return true, "well" }}
}

func never(title string, limit time.Duration) demo.Chapter {
	return demo.Chapter{Title: title, Limit: limit, Act: nothing, Goal: func(demo.View, demo.Memory) (bool, string) { return false, "still not" }}
}

func TestAGoalNotReachedIsAFailedChapterAndTheStoryGoesOn(t *testing.T) {
	t.Parallel()
	tl := teller(t, time.Minute, good("a"), never("b", 20*time.Millisecond), good("c"))
	if err := tl.Tell(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		status view.Status
		found  string
	}{{view.Done, "well"}, {view.Failed, "still not"}, {view.Done, "well"}}
	for i, r := range tl.Results() {
		if r.Status != want[i].status || r.Found != want[i].found {
			t.Errorf("%s: %s, %q", r.Chapter.Title, r.Status, r.Found)
		}
	}
	if tl.Failed() != 1 {
		t.Errorf("%d failed", tl.Failed())
	}
	if frame := tl.Frame(); len(frame.Steps) != 3 || frame.Steps[1].Status != view.Failed {
		t.Errorf("frame %+v", frame.Steps)
	}
}

func TestChaptersWithoutTimeHaveFailed(t *testing.T) {
	t.Parallel()
	tl := teller(t, 30*time.Millisecond, never("a", time.Minute), never("b", time.Minute))
	if err := tl.Tell(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tl.Failed() != 2 {
		t.Errorf("%d failed, want both", tl.Failed())
	}
}

func TestARefusedChangeEndsTheStory(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	bad := good("a")
	bad.Act = func(context.Context, client.Client, observe.State, *demo.Memory) error { return refused }
	tl := teller(t, time.Minute, bad, good("b"))
	if err := tl.Tell(t.Context()); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if tl.Failed() != 2 {
		t.Errorf("%d failed, want 2: one was refused, one never told", tl.Failed())
	}
}

func TestTheStoryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	first := good("a")
	first.Act = func(context.Context, client.Client, observe.State, *demo.Memory) error {
		cancel()
		return nil
	}
	tl := teller(t, time.Minute, first, good("b"))
	if err := tl.Tell(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
