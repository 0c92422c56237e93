package ladder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// affect has a source of its own affect each container, on a node without a NodePool.
func (w *cluster) affect(list ...[2]string) ladder.Planner {
	p := w.planner("a", list[0][1])
	for _, x := range list {
		p.Affected = append(p.Affected, w.planner("a", x[1], x[0]).Affected[0])
	}
	for i := range p.Affected {
		p.Affected[i].ServerView, _ = p.Node.Server(p.Affected[i].ID)
	}
	p.Pool = ""
	return p
}

func stay(w *cluster, names ...string) *cluster {
	for _, name := range names {
		w.mckubes[name].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
	}
	return w
}

// A container that nothing helps, because no core holds it and it must stay, does not keep help from another one as critical.
func TestContainerWithoutHelpDoesNotBlockAnother(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 3)
	w.node("b", 1)
	w.run("high", "a", "High", 50, 50, 0)
	w.run("low", "a", "Low", 20, 20, 0)
	w.run("pin1", "a", "High", 60, 60, 1)
	w.run("pin2", "a", "High", 60, 60, 2)
	w.run("there", "b", "High", 35, 35, 0)
	w.run("big", "a", "High", 70, 70, -1)
	p := stay(w, "big").affect([2]string{"big", ladder.SourceNoCore}, [2]string{"high", ladder.SourceMisses})
	r := newRecord(p)
	got := r.chosen(time.Minute, map[rules.Kind]rules.Phase{rules.OpenNode: rules.RolledBack, rules.Migrate: rules.Succeeded, rules.Preempt: rules.Succeeded})
	if len(got) < 2 || !strings.HasPrefix(got[0], "OpenNode pin") || !strings.HasPrefix(got[1], "Migrate high") && !strings.HasPrefix(got[1], "Migrate low") {
		t.Errorf("got %q", got)
	}
	r = newRecord(p)
	a, _ := r.Choose()
	r.over(a, rules.RolledBack)
	if a, _ = r.Choose(); a.Before != "container app of pod default/big (High)" || !strings.Contains(a.Request.Message, "; nothing helps container app of pod default/big (High) that was not tried in vain") {
		t.Errorf("%q, %s", a.Before, a.Request.Message)
	}
}

// A High container that is alone on its core, so that nothing helps it, does not keep help from a Middle one. But nothing is
// done at its cost.
func TestHighWithoutHelpDoesNotBlockMiddle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// low fits on core 0 beside high, and where there is one on core 2, too. With 60 ms mid lacks room beside it.
		cores int
		mid   int64
		want  string
	}{
		"with a core to spare":                {3, 40, "Rearrange: moving container app of pod default/low to core 2"},
		"with no core but the one high is on": {2, 40, "Preempt: evicting default/low"},
		"who lacks room, and none but that":   {2, 60, "Preempt: evicting default/low"},
	} {
		w := newCluster()
		w.node("a", c.cores)
		w.run("high", "a", "High", 20, 20, 0)
		w.run("mid", "a", "Middle", c.mid, c.mid, 1)
		w.run("low", "a", "Low", 30, 30, 1)
		stay(w, "high", "mid", "low")
		p := w.affect([2]string{"high", ladder.SourceOverruns}, [2]string{"mid", ladder.SourceOverruns})
		if got := chosen(t, p); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if got := chosen(t, w.affect([2]string{"mid", ladder.SourceOverruns})); !strings.HasPrefix(got, "Rearrange") {
			t.Errorf("%s, without high: got %s", name, got)
		}
	}
}

// No container gets another action for events before the last action, whatever affects other containers.
func TestOnlyContainersAffectedSinceTheLastActionAreHelped(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 3)
	w.run("high", "a", "High", 50, 50, 0)
	w.run("low", "a", "Low", 20, 20, 0)
	w.run("mid", "a", "Middle", 40, 40, 1)
	w.run("least", "a", "Low", 30, 30, 1)
	p := w.affect([2]string{"high", ladder.SourceOverruns}, [2]string{"mid", ladder.SourceOverruns})
	p.Since = start
	p.Affected[1].Last = start.Add(time.Second)
	if got := chosen(t, p); got != "Rearrange: moving container app of pod default/least to core 2" {
		t.Errorf("got %s", got)
	}
	p.Affected[0].Last = start.Add(time.Second)
	if got := chosen(t, p); got != "Rearrange: moving container app of pod default/low to core 2" {
		t.Errorf("got %s", got)
	}
}

// withoutCore is a High pod on a node whose spec has no core for it, and that must stay there.
func (s *stage) withoutCore(name, node string, ms int64) {
	s.Helper()
	m := statetest.McKube(s.namespace, name, name, "High", ms, ms)
	m.ObjectMeta = metav1.ObjectMeta{Namespace: s.namespace, Name: name}
	m.Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
	s.must(s.api.Create(s.Context(), m))
	p := statetest.On(statetest.WithClaim(statetest.Pod(s.namespace, name, "", "app"), "app", name), s.namespace+"-"+node)
	p.ObjectMeta = metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: p.Labels}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set", UID: "set", Controller: ptr.To(true)}}
	p.Spec.Containers[0].Image, p.Spec.TerminationGracePeriodSeconds = "none", ptr.To(int64(0))
	status := p.Status
	s.must(s.api.Create(s.Context(), p))
	p.Status = status
	s.must(s.api.Status().Update(s.Context(), p))
	s.claim(p, 0, int64(ppm(ms)))
}

// The same by the loop, with a full inventory: it publishes the container that nothing helps, while it helps the other.
func TestTheLoopHelpsBesideOneWithoutHelp(t *testing.T) {
	s := newStage(t)
	s.node("a", 2)
	s.node("b", 1)
	s.run("high", "a", "High", 50, 0)
	s.run("low", "a", "Low", 20, 0)
	s.run("pin", "a", "High", 60, 1)
	s.run("there", "b", "High", 35, 0)
	s.withoutCore("big", "a", 70)
	for _, kind := range []rules.Kind{rules.OpenNode, rules.ReplaceNode} {
		s.conduct[kind] = rules.Result{Undo: true, Message: "no machine is free"}
	}
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
	p := s.spawn()
	s.turns(p, 40)
	if got := strings.Join(s.actions(), "; "); len(s.done) == 0 && !strings.Contains(got, "Preempt RTPressure Succeeded low") {
		t.Errorf("nothing was done: %s", got)
	}
	for _, e := range s.told.list {
		if pod, ok := e.InvolvedObject.(*corev1.Pod); ok && pod.Name == "big" && e.Reason == "PressureUnanswered" {
			return
		}
	}
	t.Error("nobody is told of big")
}
