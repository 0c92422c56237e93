package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// booting is a Middle container for whose neighbour or itself a node is opened whose machine takes long. High overruns on
// another core of its node as soon as late says so. High has a Low neighbour that fits on a third core.
func booting(t testing.TB) (s *stage, late *bool) {
	s, late = newStage(t), new(bool)
	s.node("a", 3)
	s.run("mid", "a", "Middle", 40, 0)
	s.run("nbr", "a", "Middle", 40, 0)
	s.run("high", "a", "High", 50, 1)
	s.run("low", "a", "Low", 20, 1)
	s.run("pin", "a", "High", 45, 2)
	s.conduct[rules.OpenNode] = rules.Result{Message: "the machine boots"}
	s.overrun = besideOthers(late)
	return s, late
}

// besideOthers has mid overrun for as long as others have its core, and high, too, as soon as late says so.
func besideOthers(late *bool) func(pod string, others int64) int64 {
	return func(pod string, others int64) int64 {
		if others > 0 && (pod == "mid" || pod == "high" && *late) {
			return 5
		}
		return 0
	}
}

func pod(name string) v1alpha1.ActionPod {
	return v1alpha1.ActionPod{Namespace: "default", Name: name, UID: types.UID(name)}
}

// remove deletes a pod.
func (s *stage) remove(name string) {
	s.Helper()
	s.must(s.api.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}))
}

// has tells whether a line is among the actions.
func (s *stage) has(line string) bool { return slices.Contains(s.actions(), line) }

// A more critical container does not wait for the machine of a less critical one. The opening of that machine goes on.
func TestHighDoesNotWaitForNodeOpenedForMiddle(t *testing.T) {
	s, late := booting(t)
	p := s.spawn()
	s.turns(p, 6)
	expectLines(t, "before", s.actions(), "OpenNode RTPressure Running mid")
	*late = true
	s.turns(p, 8)
	expectLines(t, "what was done", s.done, "low to core 2")
	expectLines(t, "actions", s.actions(), "OpenNode RTPressure Running mid", "Rearrange RTPressure Succeeded")
	s.turns(p, 10)
	expectLines(t, "later", s.actions(), "OpenNode RTPressure Running mid", "Rearrange RTPressure Succeeded")
}

// The controller withdraws the opening of a node when no beneficiary of it is left, also while other containers are affected,
// and in any process.
func TestOpeningIsWithdrawnWhenItsPodIsGone(t *testing.T) {
	for name, others := range map[string]bool{"nobody else suffers": false, "another suffers on": true} {
		t.Run(name, func(t *testing.T) {
			s, late := booting(t)
			s.options.Calm = time.Hour
			p := s.spawn()
			s.turns(p, 6)
			expectLines(t, "before", s.actions(), "OpenNode RTPressure Running mid")
			s.remove("mid")
			*late = others
			if others {
				s.unable[rules.Rearrange] = true
				p = s.spawn()
			}
			s.turns(p, 8)
			if !s.has("OpenNode RTPressure RolledBack mid") {
				t.Errorf("after: %q", s.actions())
			}
		})
	}
}

// shared is a Middle container on the core of a High one. An action opens a node for the Middle one, which is affected first.
func shared(t testing.TB) (s *stage, late *bool) {
	s, late = newStage(t), new(bool)
	s.node("a", 2)
	s.run("mid", "a", "Middle", 40, 0)
	s.run("high", "a", "High", 45, 0)
	s.run("pin", "a", "High", 85, 1)
	s.conduct[rules.OpenNode] = rules.Result{Message: "the machine boots"}
	s.overrun = besideOthers(late)
	return s, late
}

// The controller first withdraws an action that has the pod in the way of a more critical container: no two actions ever have a
// pod.
func TestOpeningIsWithdrawnForPodInTheWay(t *testing.T) {
	s, late := shared(t)
	p := s.spawn()
	s.turns(p, 6)
	expectLines(t, "before", s.actions(), "OpenNode RTPressure Running mid")
	*late = true
	for range 8 {
		s.turns(p, 1)
		if s.has("OpenNode RTPressure Running mid") && slices.ContainsFunc(s.actions(), func(line string) bool { return strings.HasPrefix(line, "Preempt") }) {
			t.Fatalf("two have it: %q", s.actions())
		}
	}
	expectLines(t, "after", s.actions(), "OpenNode RTPressure RolledBack mid", "Preempt RTPressure Succeeded mid")
}

// The same, with the process killed before each of its writes.
func TestActionsGiveWayWhereverAProcessDies(t *testing.T) {
	play := func(s *stage, late *bool, p *process) {
		s.turns(p, 6)
		*late = true
		for range 30 {
			if p.dead {
				p = s.spawn()
			}
			s.turns(p, 1)
		}
	}
	points := 0
	t.Run("undisturbed", func(t *testing.T) {
		s, late := shared(t)
		p := s.spawn()
		play(s, late, p)
		points = p.points
	})
	if points < 10 {
		t.Fatalf("only %d points", points)
	}
	for _, at := range sampling.Points(t, 1, points, deathsPerPlay) {
		t.Run(fmt.Sprint("at ", at), func(t *testing.T) {
			s, late := shared(t)
			p := s.spawn()
			p.at = at
			play(s, late, p)
			if got := s.actions(); len(got) == 0 || got[len(got)-1] != "Preempt RTPressure Succeeded mid" || len(got) > 2 {
				t.Errorf("%q", got)
			}
		})
	}
}

// An action that only waits for a less critical container gives way, and no other action does.
func TestActionWaitingForLessCriticalGivesWay(t *testing.T) {
	for name, c := range map[string]struct {
		helps bool
		want  []string
	}{
		"where the more critical one is helped": {true, []string{"Preempt RTPressure Withdrawn nbr", "Rearrange RTPressure Succeeded"}},
		"not where nothing helps it":            {false, []string{"Preempt RTPressure Waiting nbr"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.options.Patience = time.Hour
			s.node("a", 3)
			s.run("mid", "a", "Middle", 40, 0)
			s.run("nbr", "a", "Low", 40, 0)
			s.run("high", "a", "High", 50, 1)
			if c.helps {
				s.run("low", "a", "Low", 20, 1)
			}
			s.run("pin", "a", "High", map[bool]int64{true: 45, false: 85}[c.helps], 2)
			s.must(s.api.Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "none"},
				Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}},
			}))
			late := false
			s.overrun = func(pod string, others int64) int64 {
				if pod == "mid" && others > 0 || pod == "high" && late && (others > 0 || !c.helps) {
					return 5
				}
				return 0
			}
			p := s.spawn()
			s.turns(p, 6)
			expectLines(t, "before", s.actions(), "Preempt RTPressure Waiting nbr")
			late = true
			s.turns(p, 5)
			got := s.actions()
			if c.helps {
				got = got[:min(len(got), len(c.want))] // the later ones are for the Middle one again
			}
			expectLines(t, "after", got, c.want...)
		})
	}
}

// while is an action in progress for a pod.
func while(kind rules.Kind, phase rules.Phase, beneficiary string, criticality mcv1.Criticality, pods ...v1alpha1.ActionPod) *v1alpha1.RTAction {
	return &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "under-way"},
		Spec: v1alpha1.RTActionSpec{
			Kind: v1alpha1.ActionKind(kind), Pods: pods,
			Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Name: beneficiary, UID: types.UID(beneficiary), Criticality: string(criticality)},
		},
		Status: v1alpha1.RTActionStatus{Phase: v1alpha1.ActionPhase(phase)},
	}
}

// No container has two answers at once. Beside the opening of a node the planner helps the containers that it does not serve.
// For containers no more critical it looks at cheaper levels, and leaves the pods of the opening alone.
func TestAnswersBesideNodeOpening(t *testing.T) {
	t.Parallel()
	build := func(second mcv1.Criticality, room int64) *cluster {
		w := newCluster()
		w.node("a", 3)
		w.run("first", "a", "Middle", 40, 40, 0)
		w.run("nbr", "a", "Middle", 40, 40, 0)
		w.run("second", "a", second, 50, 50, 1)
		w.run("small", "a", "Low", 20, 20, 1)
		w.run("pin", "a", "High", room, room, 2)
		for _, name := range []string{"first", "small"} {
			w.mckubes[name].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		}
		w.pods["small"].OwnerReferences[0].Kind = "DaemonSet"
		return w
	}
	for name, c := range map[string]struct {
		w        *cluster
		under    *v1alpha1.RTAction
		affected []string
		want     string
	}{
		"who is as critical, on another core": {build("Middle", 45), while(rules.OpenNode, rules.Running, "first", "Middle", pod("nbr")), []string{"first", "second"}, "Rearrange: moving container app of pod default/small to core 2"},
		"the one it is for":                   {build("Middle", 45), while(rules.OpenNode, rules.Running, "first", "Middle", pod("nbr")), []string{"first"}, "nothing"},
		"one whose core a pod of it leaves":   {build("Middle", 45), while(rules.OpenNode, rules.Running, "first", "Middle", pod("small")), []string{"first", "second"}, "nothing"},
		"no second node for one as critical":  {build("Middle", 85), while(rules.OpenNode, rules.Running, "first", "Middle", pod("nbr")), []string{"first", "second"}, "Preempt: evicting default/small"},
		"nobody less critical":                {build("Middle", 45), while(rules.OpenNode, rules.Running, "first", "High", pod("nbr")), []string{"second"}, "nothing"},
		"a second node for a more critical":   {lonely(build("High", 85)), while(rules.OpenNode, rules.Running, "first", "Middle", pod("nbr")), []string{"second", "first"}, "OpenNode: opening a node for default/second"},
		"nobody beside what waits for them":   {build("Middle", 45), while(rules.Preempt, rules.Waiting, "first", "Middle", pod("nbr")), []string{"first", "second"}, "nothing"},
		"whoever is more critical beside it":  {build("High", 45), while(rules.Preempt, rules.Waiting, "first", "Middle", pod("nbr")), []string{"second", "first"}, "Rearrange: moving container app of pod default/small to core 2"},
	} {
		p := c.w.planner("a", ladder.SourceOverruns, c.affected...)
		p.Beside, p.Pool = []*v1alpha1.RTAction{c.under}, ""
		if got := chosen(t, p); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// lonely keeps the planner from evicting the small pod, as that would come again.
func lonely(w *cluster) *cluster {
	w.pods["small"].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return w
}

// Any choice beside the opening of a node: no two actions have a pod, unless the opening gives way. No second node is opened for
// the same containers. No less critical container has an answer, and no container that the opening serves and that is no more
// critical.
func TestAnyChoiceBesideNodeOpening(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, p := someCluster(t)
		beneficiary, goes := rapid.SampledFrom(namesOf(w)).Draw(t, "beneficiary"), rapid.SampledFrom(namesOf(w)).Draw(t, "goes")
		of := rapid.SampledFrom([]mcv1.Criticality{"Low", "Middle", "High"}).Draw(t, "criticality")
		under := while(rules.OpenNode, rules.Running, beneficiary, of, pod(goes))
		p.Beside, p.Held = []*v1alpha1.RTAction{under}, func(uid types.UID) bool { return uid == types.UID(goes) }
		a, ok := p.Choose()
		if !ok {
			return
		}
		worth, _ := rt.ParseCriticality(string(of))
		s := p.Affected[0]
		at, _ := p.Node.Server(goes + "/app")
		served := s.Pod == beneficiary || s.Pod == goes || at != nil && (s.Physical == rt.NoCore || at.Physical == s.Physical)
		switch {
		case s.Criticality < worth, s.Criticality == worth && served:
			t.Fatalf("%s for somebody who has no answer beside it", a.What)
		case s.Criticality == worth && slices.Contains(touched(a), types.UID(goes)):
			t.Fatalf("%s: the pod is in other hands", a.What)
		case a.Kind.Rung() == rules.OpenNode.Rung() && (served || s.Criticality == worth):
			t.Fatalf("%s for the same sake", a.What)
		case a.Kind == rules.OpenNode && slices.Contains(a.Pods, types.UID(goes)):
			t.Fatalf("%s once more", a.What)
		}
	})
}
