package migration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// Refusal implements migration.Placement.
func (w *town) Refusal(_ context.Context, node string, pods []*corev1.Pod) (string, error) {
	w.Helper()
	there := 0
	for _, p := range w.pods() {
		if p.Spec.NodeName == node {
			there++
		}
	}
	if w.seats > 0 && node == w.name("b") && there+len(pods) > w.seats {
		return fmt.Sprintf("it has %d seats", w.seats), nil
	}
	return "", nil
}

// Two pods are not evicted for the room of one, whatever each finds when it asks, and whichever process dies.
func TestRoomForOneIsNotGivenToTwo(t *testing.T) {
	t.Parallel()
	writes := 0
	play := func(dieAt int) {
		t.Run(fmt.Sprint("death ", dieAt), func(t *testing.T) {
			w := newTown(t, 2)
			w.seats, w.dieAt = 1, dieAt
			actions := w.play(nil, w.request("rt-1"), w.request("rt-2"))
			writes = max(writes, w.writes)
			var phases []string
			for _, o := range actions {
				phases = append(phases, string(o.Status.Phase))
				if o.Status.Phase == "RolledBack" && !strings.Contains(o.Status.Message, "it has 1 seats") {
					t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
				}
			}
			slices.Sort(phases)
			if got := strings.Join(phases, " "); got != "RolledBack Succeeded" {
				t.Errorf("the actions are %s", got)
			}
			if len(w.evicted) != 1 {
				t.Errorf("evicted %q", w.evicted)
			}
		})
	}
	play(0)
	for _, dieAt := range sampling.Points(t, 1, writes, deathsPerStory) {
		play(dieAt)
	}
}

// place has a pod go to the only node that it may go to, or has the scheduler say why it does not.
func (w *town) place(p *corev1.Pod, node string) {
	w.Helper()
	said := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes are available: 1 " + w.word + ", 1 node(s) didn't match Pod's node affinity/selector.",
	}
	switch {
	case !w.crowded[node]:
		if w.lets(node, p) {
			w.bind(p, node, 0)
		}
	case w.word != "" && !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == said.Type && c.Message == said.Message }):
		p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == said.Type }), said)
		w.must(w.api.Status().Update(w.Context(), p))
	}
}

// A pod whose owner takes long to recreate it holds up others that go to the same node, but not for all the time that they have
// themselves.
func TestAPodThatIsNotMadeHoldsUpOthersForAWhile(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.lazy = true
	var list []orchestration.Request
	for _, pod := range []string{"rt-1", "rt-2"} {
		r := w.request(pod)
		r.Timeout = time.Minute
		list = append(list, r)
	}
	first, second := -1, -1
	actions := w.play(func(turn int, p *process) {
		switch {
		case first < 0 && len(w.evicted) > 0: // and gone: while it is there, there is room beside it
			first = turn
			w.submit(p, list[1])
		case second < 0 && len(w.evicted) > 1:
			second, w.lazy = turn, false
		}
	}, list[0])
	if len(actions) != 2 {
		t.Fatalf("%d actions, want 2", len(actions))
	}
	for _, o := range actions {
		if o.Status.Phase != "Succeeded" {
			t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
		}
	}
	if waited := second - first; waited < 20 || waited > 40 {
		t.Errorf("the second was evicted after %d s", waited)
	}
}
