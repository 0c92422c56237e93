package ladder_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A container of a terminating pod is not affected. The controller asks for nothing on its account during its grace period, and
// the pressure is over.
func TestNoActionForTerminatingPod(t *testing.T) {
	s := newStage(t)
	s.node("a", 2)
	high := s.run("high", "a", "High", 50, 0)
	s.run("low", "a", "Low", 20, 0)
	s.run("pin", "a", "High", 45, 1)
	high.Finalizers = []string{"example.com/ends"} // the API server has no kubelet that would end it after its grace
	s.must(s.api.Update(t.Context(), high))
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
	p := s.spawn()
	s.turns(p, 2)
	if got := s.pressure("a"); got != ladder.SourceOverruns {
		t.Fatalf("it is %q", got)
	}
	s.must(s.api.Delete(t.Context(), high, client.GracePeriodSeconds(30)))
	defer func() {
		left := &corev1.Pod{}
		s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(high), left))
		left.Finalizers = nil
		s.must(s.api.Update(t.Context(), left))
	}()
	s.turns(p, 15)
	expectLines(t, "actions", s.actions())
	if got := s.pressure("a"); got != "Ended" {
		t.Errorf("it is %q", got)
	}
}

// thrifty has NodePools whose budgets let no node go.
type thrifty struct{ undisrupted }

func (thrifty) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) {
	return map[string]orchestration.PoolAllowance{"edge": {Nodes: 0}}, nil
}

// A replacement ends when its beneficiary is gone, whether it waits or runs, and while less critical containers are still
// affected.
func TestReplacementEndsWithItsBeneficiary(t *testing.T) {
	for name, c := range map[string]struct {
		waits bool
		want  string
	}{
		"it waits": {true, "ReplaceNode RTPressure Withdrawn"},
		"it runs":  {false, "ReplaceNode RTPressure RolledBack"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.options.Calm, s.options.Patience = time.Hour, time.Hour
			s.node("a", 2)
			high := s.run("high", "a", "High", 60, 0)
			s.run("mid", "a", "Middle", 60, 1)
			s.conduct[rules.OpenNode] = rules.Result{Undo: true, Message: "no machine is free"}
			s.conduct[rules.ReplaceNode] = rules.Result{Message: "the replacement starts"}
			s.missing("high", "mid")
			p := s.spawn()
			if c.waits {
				p.queue.Nodes = thrifty{}
			}
			affect := func(turns int) {
				for range turns {
					s.misses["mid"], s.misses["high"] = s.misses["mid"]+5, s.misses["high"]+5
					s.turns(p, 1)
				}
			}
			affect(12)
			under := "ReplaceNode RTPressure " + map[bool]string{true: "Waiting", false: "Running"}[c.waits]
			if got := strings.Join(s.actions(), "; "); !strings.Contains(got, under) {
				t.Fatalf("before: %s", got)
			}
			s.must(s.api.Delete(t.Context(), high))
			affect(3)
			if got := strings.Join(s.actions(), "; "); !strings.Contains(got, c.want) {
				t.Errorf("after: %s, want %s", got, c.want)
			}
			if got := s.pressure("a"); got != ladder.SourceMisses+"+taint" {
				t.Errorf("it is %q", got)
			}
		})
	}
}

// missing sets a limit of missed deadlines for some pods.
func (s *stage) missing(names ...string) {
	s.Helper()
	for _, name := range names {
		m := &mcv1.McKube{}
		s.must(s.api.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, m))
		m.Spec.PressuredDeadlinesTotal, m.Spec.PressuredDeadlinesPeriod = ptr.To[int32](3), ptr.To[int32](10)
		s.must(s.api.Update(s.Context(), m))
	}
}

// A terminating pod does not keep its node from being late as a whole.
func TestNodeIsLateDespiteTerminatingPod(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 3)
	w.run("one", "a", "High", 30, 30, 0)
	w.run("two", "a", "High", 30, 30, 1)
	w.run("ends", "a", "Low", 30, 30, 2).DeletionTimestamp = &metav1.Time{Time: start}
	w.pods["ends"].Finalizers = []string{"example.com/ends"}
	if got := chosen(t, w.planner("a", ladder.SourceMisses, "one", "two")); got != "ReplaceNode: replacing node a" {
		t.Errorf("got %s", got)
	}
}
