package ladder_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// byName has McKubes govern pods by their names.
func (w *cluster) byName(names ...string) {
	for _, name := range names {
		w.mckubes[name].Spec.Podname, w.mckubes[name].Spec.Selector = name, nil
	}
}

// The replacement that a ReplicaSet makes for a pod has another name, so a McKube that governs by name would not govern it.
func TestAPodThatWouldLoseItsBudgetStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster)
		want   string
	}{
		"another goes": {func(w *cluster) { w.node("b", 1); w.byName("large") }, "Migrate: moving default/small to node b"},
		"the one who suffers goes": {func(w *cluster) { w.node("b", 1); w.byName("large", "small") },
			"Migrate: moving default/high itself to node b"},
		"it keeps its name": {func(w *cluster) {
			w.node("b", 1)
			w.byName("large")
			w.pods["large"].OwnerReferences[0].Kind = "StatefulSet"
		}, "Migrate: moving default/large to node b"},
		"nobody may go, and a lesser one is evicted": {func(w *cluster) { w.node("b", 1); w.byName("high", "small", "large") },
			"Preempt: evicting default/large (without budget from then on: pod default/large: McKube large governs the pod by its name, and the one in its place has another; give it a selector)"},
		"no node is opened for it": {func(w *cluster) {
			w.gone("small", "large")
			w.run("equal", "a", "High", 20, 30, 0)
			w.byName("equal")
		}, "OpenNode: opening a node for default/high"},
		"nor replaced": {func(w *cluster) {
			w.gone("small", "large", "other")
			w.run("equal", "a", "High", 20, 30, 0)
			w.byName("equal", "high")
		}, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := contendedCores()
			c.change(w)
			source := ladder.SourceOverruns
			if name == "nor replaced" {
				w.cores["a"], source = 1, ladder.SourceMisses
			}
			if got := chosen(t, w.planner("a", source, "high")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The report that no pod was moved says which pods must stay, and why: of many it names a few.
func TestPodsThatMustStayAreReported(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	w.byName("high", "small", "large")
	a, _ := w.planner("a", ladder.SourceOverruns, "high").Choose()
	want := "Migrate: no pod whose leaving would help may be moved and finds a core elsewhere (these must stay: " +
		"pod default/high: McKube high governs the pod by its name, and the one in its place has another; give it a selector, pod default/large: McKube large"
	if !strings.Contains(a.Request.Message, want) {
		t.Errorf("%q does not say %q", a.Request.Message, want)
	}
	for i := range 3 {
		name := "also" + string(rune('0'+i))
		w.run(name, "a", "Low", 2, 2, 0)
		w.byName(name)
	}
	a, _ = w.planner("a", ladder.SourceOverruns, "high").Choose()
	if got := a.Request.Message; !strings.Contains(got, "pod default/also2: McKube also2 governs the pod by its name, and the one in its place has another; give it a selector, and others)") {
		t.Errorf("told %q", got)
	}
}
