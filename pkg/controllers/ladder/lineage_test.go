package ladder_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// The controller does not send a container round the cluster that misses its deadlines everywhere. It moves the container once.
// Then it publishes that nothing helps, also in the next process.
func TestPodLateEverywhereIsMovedOnce(t *testing.T) {
	s := newStage(t)
	for _, n := range []string{"a", "b", "c"} {
		s.node(n, 2)
	}
	s.sick("a")
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

// sick is a container that may not miss more than two deadlines within five seconds.
func (s *stage) sick(node string) {
	s.Helper()
	s.run("sick", node, "High", 20, 0)
	m := s.mckube("sick")
	m.Spec.PressuredDeadlinesTotal, m.Spec.PressuredDeadlinesPeriod = ptr.To[int32](3), ptr.To[int32](5)
	s.must(s.api.Update(s.Context(), m))
}

func (s *stage) mckube(name string) *mcv1.McKube {
	s.Helper()
	m := &mcv1.McKube{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, m))
	return m
}

// leftLate records for the predecessor of a pod which node it left for being late, how long ago, and how often.
func (w *cluster) leftLate(pod, node string, ago time.Duration, times int) {
	before := "before-" + pod
	value, err := json.Marshal([]map[string]any{{"pod": before, "node": node, "at": start.Add(-ago), "times": times, "newest": statetest.Birth}})
	if err != nil {
		panic(err)
	}
	w.mckubes[pod].Annotations = map[string]string{mcv1.AnnotationLeftLate: string(value)}
	w.pods[pod].Annotations = map[string]string{mcv1.AnnotationReplaces: before}
}

// noted writes on the McKubes of pods what the controller must record before an action.
func (w *cluster) noted(t *testing.T, a ladder.Answer, pods ...string) {
	t.Helper()
	if len(a.Leaving) != 1 {
		t.Fatalf("%s: leaving are %v", a.What, a.Leaving)
	}
	value, err := json.Marshal(a.Leaving[0].Left)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		w.mckubes[pod].Annotations = map[string]string{mcv1.AnnotationLeftLate: string(value)}
	}
}

// A pod that is late on two nodes pays for it, and so does its replacement, but no other pod of its McKube. That holds before
// the action has moved a pod, and after it.
func TestSiblingOfPodLateEverywhereIsHelped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// replaces is the pod that it replaces; made is when, after the others.
		replaces string
		made     time.Duration
	}{
		"a migration has written down whose replacement it is": {"one", time.Minute},
		"an owner has made it":                                 {"", time.Minute},
		"in the second in which the others were made":          {"", 0},
	} {
		w := newCluster()
		for _, n := range []string{"a", "b", "c", "d"} {
			w.node(n, 2)
		}
		w.run("one", "a", "High", 20, 20, 0)
		w.run("two", "b", "High", 20, 20, 0)
		m := w.mckubes["one"]
		m.Spec.Podname, m.Spec.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}
		w.mckubes["two"] = m
		first, ok := w.planner("a", ladder.SourceMisses, "one").Choose()
		if !ok {
			t.Fatalf("%s: nothing helps", name)
		}
		helped := chosen(t, w.planner("b", ladder.SourceMisses, "two"))
		w.noted(t, first, "one")
		for who, node := range map[string]string{"one": "a", "two": "b"} {
			if got := chosen(t, w.planner(node, ladder.SourceMisses, who)); !strings.HasPrefix(got, "Migrate") {
				t.Errorf("%s: nobody was moved yet, and %s is not helped: %s", name, who, got)
			}
		}
		w.gone("one")
		replacement := w.run("replacement", "c", "High", 20, 20, 0)
		replacement.CreationTimestamp = metav1.NewTime(w.pods["two"].CreationTimestamp.Add(c.made))
		if c.replaces != "" {
			replacement.Annotations = map[string]string{mcv1.AnnotationReplaces: c.replaces}
		}
		w.mckubes["replacement"] = m
		if got := chosen(t, w.planner("b", ladder.SourceMisses, "two")); got != helped {
			t.Errorf("%s: two was to have %q, and has %q", name, helped, got)
		}
		young := w.run("young", "d", "High", 20, 20, 0)
		young.CreationTimestamp = metav1.NewTime(replacement.CreationTimestamp.Add(time.Minute))
		w.mckubes["young"] = m
		if got := chosen(t, w.planner("d", ladder.SourceMisses, "young")); !strings.HasPrefix(got, "Migrate") {
			t.Errorf("%s: another pod was made later, is in nobody's place, and is not helped: %s", name, got)
		}
		p := w.planner("c", ladder.SourceMisses, "replacement")
		p.Now = start.Add(9 * time.Minute)
		if got := chosen(t, p); got != "nothing" {
			t.Errorf("%s: the replacement is sent on: %s", name, got)
		}
		p.Now = start.Add(11 * time.Minute)
		second, ok := p.Choose()
		if !ok || len(second.Leaving) != 1 || len(second.Leaving[0].Left) != 1 || second.Leaving[0].Left[0].Times != 2 {
			t.Errorf("%s: after its rest: %s, %+v", name, second.What, second.Leaving)
		}
	}
}

// Two pods of a McKube leave two nodes, and the second look has not seen the write of the first. No record is lost.
func TestTwoPodsLeavingAtOnceAreBothRecorded(t *testing.T) {
	t.Parallel()
	w := newCluster()
	for _, n := range []string{"a", "b", "c"} {
		w.node(n, 2)
	}
	var m *mcv1.McKube
	for i, pod := range []string{"one", "two"} {
		w.run(pod, []string{"a", "b"}[i], "High", 20, 20, 0)
		if m == nil {
			m = w.mckubes[pod]
			m.Spec.Podname, m.Spec.Selector, m.ResourceVersion = "", &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}, ""
		}
		w.mckubes[pod] = m
	}
	scheme := runtime.NewScheme()
	if err := mcv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m.DeepCopy()).Build()
	see := func() {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
	}
	leaves := func(pod, node string) ladder.Answer {
		a, ok := w.planner(node, ladder.SourceMisses, pod).Choose()
		if !ok || len(a.Leaving) != 1 {
			t.Fatalf("%s: %s, leaving %+v", pod, a.What, a.Leaving)
		}
		return a
	}
	see()
	first, second := leaves("one", "a"), leaves("two", "b")
	if err := ladder.Note(t.Context(), api, first); err != nil {
		t.Fatal(err)
	}
	if err := ladder.Note(t.Context(), api, second); !apierrors.IsConflict(err) {
		t.Errorf("what was not seen is written over: %v", err)
	}
	see()
	if err := ladder.Note(t.Context(), api, leaves("two", "b")); err != nil {
		t.Fatal(err)
	}
	see()
	if noted := m.Annotations[mcv1.AnnotationLeftLate]; !strings.Contains(noted, `"one"`) || !strings.Contains(noted, `"two"`) {
		t.Errorf("noted is %s", noted)
	}
}

func TestNodeIsNotReplacedForPodLateEverywhere(t *testing.T) {
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
		w := newCluster()
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

// Neighbours of a pod that is late everywhere may still give it room. Its backoff is the longer the more often it was moved.
func TestPodLateEverywhereMayGetRoom(t *testing.T) {
	t.Parallel()
	w := newCluster()
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
