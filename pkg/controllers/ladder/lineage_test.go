package ladder_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A container that misses its deadlines wherever it is is not sent round the cluster: it is moved once, and then it is told
// that nothing helps, also by the next controller.
func TestWhoIsLateEverywhereIsMovedOnce(t *testing.T) {
	s := newStage(t)
	for _, n := range []string{"a", "b", "c"} {
		s.node(n, 2)
	}
	s.run("sick", "a", "High", 20, 0)
	m := &mcv1.McKube{}
	s.must(s.api.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "sick"}, m))
	m.Spec.PressuredDeadlinesTotal, m.Spec.PressuredDeadlinesPeriod = ptr.To[int32](3), ptr.To[int32](5)
	s.must(s.api.Update(t.Context(), m))
	p := s.spawn()
	for turn := range 60 { // two minutes
		s.misses["sick"] += 3
		s.live()
		p.turn()
		s.clock.Step(tick)
		if turn == 40 {
			p = s.spawn()
		}
	}
	if len(s.done) != 1 || !strings.HasPrefix(s.done[0], "sick to node") {
		t.Errorf("done in two minutes: %q, want one move", s.done)
	}
	for _, o := range s.actions() {
		if strings.HasPrefix(o, "OpenNode") || strings.HasPrefix(o, "ReplaceNode") {
			t.Errorf("%s: another node would not help", o)
		}
	}
	said := slices.ContainsFunc(s.told.list, func(e karpenterevents.Event) bool {
		return e.Reason == "PressureUnanswered" && strings.Contains(e.Message, "is late here, too")
	})
	if !said {
		t.Error("nobody is told that it is late everywhere")
	}
}

// leftLate says of a pod's McKube which node it left for being late, how long ago, and how often.
func (w *town) leftLate(pod, node string, ago time.Duration, times int) {
	value, err := json.Marshal(map[string]any{"node": types.UID(node), "at": start.Add(-ago), "times": times})
	if err != nil {
		panic(err)
	}
	w.mckubes[pod].Annotations = map[string]string{mcv1.AnnotationLeftLate: string(value)}
}

func TestANodeIsNotReplacedForWhoeverIsLateEverywhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		from string
		ago  time.Duration
		want string
	}{
		{"never late before", "", 0, "ReplaceNode: replacing node a"},
		{"late on this node before", "a", time.Minute, "ReplaceNode: replacing node a"},
		{"late on another", "z", 9 * time.Minute, "nothing"},
		{"late on another long ago", "z", 11 * time.Minute, "ReplaceNode: replacing node a"},
	} {
		w := newTown()
		w.node("a", 2)
		w.node("b", 2)
		for i, pod := range []string{"one", "two"} {
			w.run(pod, "a", "High", 20, 20, i)
			if c.from != "" {
				w.leftLate(pod, c.from, c.ago, 1)
			}
		}
		if got := chosen(t, w.planner("a", ladder.SourceMisses, "one", "two")); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Neighbours of one that is late everywhere may still give it room, and it rests the longer the more often it was moved.
func TestWhoIsLateEverywhereMayBeGivenRoom(t *testing.T) {
	t.Parallel()
	w := newTown()
	w.node("a", 2)
	w.node("b", 2)
	w.run("sick", "a", "High", 40, 40, 0)
	w.run("lesser", "a", "Low", 20, 20, 0)
	w.leftLate("sick", "z", 35*time.Minute, 3)
	if got := chosen(t, w.planner("a", ladder.SourceMisses, "sick")); !strings.HasPrefix(got, "Rearrange: moving container app of pod default/lesser") {
		t.Errorf("got %s", got)
	}
	w.gone("lesser")
	if got := chosen(t, w.planner("a", ladder.SourceMisses, "sick")); got != "nothing" {
		t.Errorf("with the core to itself: %s", got)
	}
	w.leftLate("sick", "z", 41*time.Minute, 3)
	if got := chosen(t, w.planner("a", ladder.SourceMisses, "sick")); !strings.HasPrefix(got, "Migrate") {
		t.Errorf("after its rest: %s", got)
	}
}

func unansweredNodes(t *testing.T) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := metrics.PressureUnanswered.WithLabelValues().Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func TestAPressureThatHasGoneIsNotCountedAsUnanswered(t *testing.T) {
	s := simple(t)
	before := unansweredNodes(t)
	for _, kind := range rules.Kinds {
		s.conduct[kind] = rules.Result{Undo: true, Message: "no"}
	}
	p := s.spawn()
	s.turns(p, 20)
	if n := unansweredNodes(t) - before; n != 1 {
		t.Errorf("%v nodes count as unanswered while every action comes to nothing", n)
	}
	s.overrun = func(string, int64) int64 { return 0 }
	for range 10 {
		s.turns(p, 1)
		if got := s.pressure("a"); strings.HasPrefix(got, "Eased") || strings.HasPrefix(got, "Recovering") {
			p.turn()
			if n := unansweredNodes(t) - before; n != 0 {
				t.Fatalf("%v nodes count as unanswered in stage %s", n, got)
			}
		}
	}
}
