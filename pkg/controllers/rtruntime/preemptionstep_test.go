package rtruntime_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// planned evicts low-1 and low-2 from the one core of node a for pod high, from Birth on.
func planned() state.Preemption {
	return state.Preemption{
		Node: "a", Core: 0, Victims: []types.UID{"low-1", "low-2"}, Deadline: metav1.NewTime(statetest.Birth.Add(rtruntime.PreemptionLife)),
		Life: metav1.Duration{Duration: rtruntime.PreemptionLife},
	}
}

// crowded is a core with two pods that both have to go for pod high.
func crowded() (s *site, high, low1, low2 *corev1.Pod) {
	s = &site{}
	s.node("a", 1)
	low1 = s.pod("low-1", "a", one("Low", 40, 0))
	low2 = s.pod("low-2", "a", one("Low", 40, 0))
	high = s.pod("high", "", one("High", 80, 0))
	return s, high, low1, low2
}

func TestNextStepOfAPlan(t *testing.T) {
	deleted := metav1.NewTime(statetest.Birth)
	type pods struct{ high, low1, low2 *corev1.Pod }
	tests := []struct {
		name   string
		change func(s *site, p pods)
		gone   []types.UID
		plan   func(*state.Preemption)
		after  time.Duration
		want   string // outcome or victims
	}{
		{name: "evict all", want: "evict low-1 low-2"},
		{name: "evict the rest", gone: []types.UID{"low-1"}, want: "evict low-2"},
		{name: "a victim is being deleted", change: func(_ *site, p pods) { p.low2.DeletionTimestamp = &deleted }, want: "evict low-1"},
		{name: "all are gone", gone: []types.UID{"low-1", "low-2"}, want: "wait"},
		{name: "a core became free elsewhere", change: func(s *site, _ pods) { s.node("b", 1) }, want: "wait"},
		{name: "one is enough now", change: func(s *site, _ pods) { s.percent("high", 40) }, want: "evict low-2"},
		{name: "a victim is as critical now", change: func(s *site, _ pods) { s.critical("low-1", "High") }, want: "failed: Node a would have no room"},
		{name: "the pod is not critical any more", change: func(s *site, _ pods) { s.critical("high", "Low") }, want: "failed: The pod no longer waits"},
		{name: "the pod was scheduled", change: func(_ *site, p pods) { statetest.On(p.high, "b") }, want: "The pod is on node b"},
		{name: "the pod is being deleted", change: func(_ *site, p pods) { p.high.DeletionTimestamp = &deleted }, want: "The pod is ending"},
		{name: "in time", after: rtruntime.PreemptionLife - time.Nanosecond, want: "evict low-1 low-2"},
		{name: "too late", after: rtruntime.PreemptionLife, want: "failed: There was no room for the pod within 1m0s"},
		{name: "too late, and why", plan: func(p *state.Preemption) { p.Waits = "a budget" }, after: rtruntime.PreemptionLife, want: "failed: There was no room for the pod within 1m0s: a budget"},
		{name: "the node is cordoned", change: func(s *site, _ pods) { s.objects[0].(*corev1.Node).Spec.Unschedulable = true }, want: "failed: Node a would have no room"},
		{name: "the node is not there", plan: func(p *state.Preemption) { p.Node = "z" }, want: "failed: Node z would have no room"},
		{name: "another took the room", gone: []types.UID{"low-1", "low-2"}, change: func(s *site, _ pods) {
			s.pod("thief", "a", one("Low", 60, 0))
		}, want: "failed: Node a would have no room"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, high, low1, low2 := crowded()
			if test.change != nil {
				test.change(s, pods{high, low1, low2})
			}
			plan := planned()
			if test.plan != nil {
				test.plan(&plan)
			}
			scene := s.scene(t)
			scene.Gone, scene.Patient = test.gone, true
			if got := words(scene.Next(plan, statetest.Birth.Add(test.after))); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A plan lasts as long as its victims may take to end, within bounds: who is on its way out when the plan ends was evicted for nothing.
func TestAPlanWaitsForItsVictimsGrace(t *testing.T) {
	for grace, want := range map[int64]time.Duration{0: time.Minute, 30: time.Minute, 120: 150 * time.Second, 86400: 10*time.Minute + 30*time.Second} {
		s, _, low1, low2 := crowded()
		low1.Spec.TerminationGracePeriodSeconds, low2.Spec.TerminationGracePeriodSeconds = ptr.To(grace), ptr.To(int64(1))
		if got := rtruntime.LifeFor(s.scene(t).Snapshot, []types.UID{"low-1", "low-2", "unknown"}); got != want {
			t.Errorf("with a grace of %d s a plan lasts %s, want %s", grace, got, want)
		}
	}
	plan := planned()
	plan.Life.Duration = 150 * time.Second
	plan.Deadline = metav1.NewTime(statetest.Birth.Add(plan.Life.Duration))
	deleted := metav1.NewTime(statetest.Birth)
	s, _, low1, low2 := crowded()
	low1.DeletionTimestamp, low2.DeletionTimestamp = &deleted, &deleted
	for after, want := range map[time.Duration]string{149 * time.Second: "wait", 150 * time.Second: "failed: There was no room for the pod within 2m30s"} {
		scene := s.scene(t)
		scene.Patient = true
		if got := words(scene.Next(plan, statetest.Birth.Add(after))); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
}

func words(s rtruntime.PreemptionStep) string {
	switch {
	case s.Failed:
		return "failed: " + s.Outcome
	case s.Outcome != "":
		return s.Outcome
	case len(s.Evict) == 0:
		return "wait"
	}
	out := "evict"
	for _, uid := range s.Evict {
		out += " " + string(uid)
	}
	return out
}

// critical changes the criticality of the pod's McKube.
func (s *site) critical(pod string, c mcv1.Criticality) {
	for _, o := range s.objects {
		if m, ok := o.(*mcv1.McKube); ok && m.Spec.Podname == pod {
			m.Spec.Criticality = c
		}
	}
}

// percent changes the budget of the pod's McKube.
func (s *site) percent(pod string, percent int64) {
	for _, o := range s.objects {
		if m, ok := o.(*mcv1.McKube); ok && m.Spec.Podname == pod {
			m.Spec.RTSettings.RuntimeLow, m.Spec.RTSettings.RuntimeHi = percent*1000, percent*1000
		}
	}
}

func TestWhoMayHaveRoomMade(t *testing.T) {
	deleted := metav1.NewTime(statetest.Birth)
	tests := map[string]struct {
		change func(s *site, p *corev1.Pod)
		want   bool
	}{
		"unschedulable":         {func(*site, *corev1.Pod) {}, true},
		"not tried yet":         {func(_ *site, p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"bound":                 {func(_ *site, p *corev1.Pod) { p.Spec.NodeName = "a" }, false},
		"being deleted":         {func(_ *site, p *corev1.Pod) { p.DeletionTimestamp = &deleted }, false},
		"finished":              {func(_ *site, p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"held back by any gate": {func(_ *site, p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} }, false},
		"Low":                   {func(s *site, _ *corev1.Pod) { s.critical("high", "Low") }, false},
		"without its claim":     {func(_ *site, p *corev1.Pod) { p.Spec.ResourceClaims = nil }, false},
		"without a McKube":      {func(s *site, _ *corev1.Pod) { s.drop() }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &site{}
			test.change(s, s.pod("high", "", one("High", 80, 0)))
			if got := rtruntime.WaitsForCore(s.scene(t).Pod); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// drop takes the McKubes away.
func (s *site) drop() {
	kept := s.objects[:0]
	for _, o := range s.objects {
		if _, ok := o.(*mcv1.McKube); !ok {
			kept = append(kept, o)
		}
	}
	s.objects = kept
}

func TestChangesWakeWhoWaits(t *testing.T) {
	s, high, _, _ := crowded()
	text, err := planned().Encode()
	if err != nil {
		t.Fatal(err)
	}
	high.Annotations = map[string]string{mcv1.AnnotationPreempting: text}
	s.pod("other", "", one("High", 80, 0))
	snapshot := statetest.Build(s.objects...)
	named := func(names ...string) (change state.Change) {
		for _, name := range names {
			change.Pods = append(change.Pods, types.NamespacedName{Namespace: "default", Name: name})
		}
		return change
	}
	for _, test := range []struct {
		change state.Change
		want   []string
	}{
		{named("low-1", "other", "gone", "high"), []string{"other", "high"}},
		{state.Change{Nodes: []string{"a"}}, []string{"high"}},
		{state.Change{Nodes: []string{"b"}}, nil},
	} {
		if got := rtruntime.Waiting(snapshot, test.change); !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %v, want %v", test.change, got, test.want)
		}
	}
}

func TestHeldBackWhileRoomIsMadeForMoreCriticalPods(t *testing.T) {
	s := &site{}
	s.pod("high", "", one("Middle", 50, 0))
	pod := s.scene(t).Pod
	other := *pod
	other.UID = "other"
	now := statetest.Birth
	plan := func(by *state.PodView, c rt.Criticality, deadline time.Time) state.Preempting {
		return state.Preempting{Pod: by, Criticality: c, Preemption: state.Preemption{Deadline: metav1.NewTime(deadline)}}
	}
	tests := map[string]struct {
		plans []state.Preempting
		want  bool
	}{
		"no plan":                    {nil, false},
		"for a more critical pod":    {[]state.Preempting{plan(&other, rt.High, now.Add(time.Second))}, true},
		"for an equal":               {[]state.Preempting{plan(&other, rt.Middle, now.Add(time.Second))}, false},
		"past its deadline":          {[]state.Preempting{plan(&other, rt.High, now)}, false},
		"its own":                    {[]state.Preempting{plan(pod, rt.High, now.Add(time.Second))}, false},
		"one of several is critical": {[]state.Preempting{plan(&other, rt.Low, now.Add(time.Second)), plan(&other, rt.High, now.Add(time.Second))}, true},
	}
	for name, test := range tests {
		if got := rtruntime.HeldBack(pod, test.plans, now); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestBackoffGrowsAndEndsWithThePlan(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: time.Second, 4 * time.Second: 2 * time.Second, 16 * time.Second: 8 * time.Second, 30 * time.Second: 10 * time.Second,
		55 * time.Second: 5 * time.Second, time.Minute: 100 * time.Millisecond, -time.Hour: time.Second,
	} {
		if got := rtruntime.Backoff(planned(), statetest.Birth.Add(age)); got != want {
			t.Errorf("after %s: got %s, want %s", age, got, want)
		}
	}
}

func TestPlansInVainComeLessAndLessOften(t *testing.T) {
	for inVain, want := range map[int]time.Duration{
		1: 30 * time.Second, 2: time.Minute, 3: 2 * time.Minute, 5: 8 * time.Minute, 6: 10 * time.Minute, 1 << 30: 10 * time.Minute,
	} {
		if got := rtruntime.RestAfter(inVain); got != want {
			t.Errorf("after %d in vain: %s, want %s", inVain, got, want)
		}
	}
}

// What others have written over a rest neither ends the controller nor keeps the pod waiting for ever.
func TestRestsAreReadAsTheyAreWritten(t *testing.T) {
	now := statetest.Birth.UTC()
	for text, want := range map[string]time.Time{
		rtruntime.RestText(3, now.Add(time.Minute)):  now.Add(time.Minute),
		rtruntime.RestText(3, now.Add(-time.Minute)): now.Add(-time.Minute),
		rtruntime.RestText(3, now.Add(time.Hour)):    now.Add(10 * time.Minute),
		"": {}, "3": {}, "3 until never": {}, "until 3": {}, rtruntime.RestText(-1, now): {},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"mckube.io/preemption-rest": text}}}
		inVain, until := rtruntime.RestOf(pod, now)
		if !until.Equal(want) || (inVain == 3) != !want.IsZero() {
			t.Errorf("%q: %d in vain, rests until %s", text, inVain, until)
		}
	}
}

func TestNodesNeedMoreThanCores(t *testing.T) {
	allocatable := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("2")}
	needs := func(name, cpu string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}}}
	}
	pod := needs("high", "1")
	finished := needs("f", "2")
	finished.Status.Phase = corev1.PodSucceeded
	tests := map[string]struct {
		pods []corev1.Pod
		gone map[types.UID]bool
		want bool
	}{
		"enough":               {[]corev1.Pod{needs("a", "1")}, nil, true},
		"too little CPU":       {[]corev1.Pod{needs("a", "1100m")}, nil, false},
		"enough without a":     {[]corev1.Pod{needs("a", "2")}, map[types.UID]bool{"a": true}, true},
		"too many pods":        {[]corev1.Pod{needs("a", "0"), needs("b", "0")}, nil, false},
		"who finished is gone": {[]corev1.Pod{finished}, nil, true},
	}
	for name, test := range tests {
		if got := rtruntime.Enough(allocatable, test.pods, &pod, test.gone); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
