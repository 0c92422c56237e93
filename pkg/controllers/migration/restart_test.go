package migration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// A restarted API server keeps the owner of an evicted source from creating pods from its first answer on. To stop and start it takes
// ten seconds, so all owners see the same restart.
func TestAnAPIServerThatIsStartedAgain(t *testing.T) {
	type move struct {
		*house
		kind string
		p    *process
		got  chan map[string]int
	}
	var moves []move
	for _, kind := range []string{"StatefulSet", "Job"} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house(kind)
		w.asks(w.first(), by("Checkpoint"))
		p := w.further(w.start(), func() bool { return len(w.evicted) > 0 })
		moves = append(moves, move{h, kind, p, make(chan map[string]int, 1)})
	}
	plane, err := apiserver.Shared()
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), eventually)
	defer stop()
	for _, m := range moves {
		go func() { m.got <- m.insists(ctx) }()
	}
	if err := plane.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range moves {
		if got := <-m.got; got["kept"] == 0 || got["made"] > 0 {
			t.Errorf("%s: its owner's pod: %v", m.kind, got)
		}
	}
	for _, m := range moves {
		m.further(m.p, func() bool { return m.move().Status.Phase.Over() })
		if o := m.move(); o.Status.Phase != "Succeeded" {
			t.Errorf("%s: it is %s: %s", m.kind, o.Status.Phase, o.Status.Message)
		}
	}
}

// insists requests the owner's pod again and again, and counts the answers until there are many: kept by the policy, made, or not up
// yet.
func (h *house) insists(ctx context.Context) map[string]int {
	api, err := client.New(apiserver.Config(h), client.Options{Scheme: apiserver.Scheme(h)})
	if err != nil {
		return map[string]int{err.Error(): 1}
	}
	pod, got := h.pod.DeepCopy(), map[string]int{}
	pod.Name = "rt-1"
	if !h.named {
		pod.Name, pod.GenerateName = "", "rt-"
	}
	for ctx.Err() == nil && got["made"]+got["kept"] < 200 {
		one, stop := context.WithTimeout(ctx, 5*time.Second)
		switch err := api.Create(one, pod.DeepCopy(), client.DryRunAll); {
		case err == nil:
			got["made"]++
		case strings.Contains(err.Error(), "with its state"):
			got["kept"]++
		default:
			got["not up"]++
		}
		stop()
		time.Sleep(5 * time.Millisecond)
	}
	return got
}
