package rtruntime_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// stands has a pod stand still for a NodeCheckpoint, until what it returns says that it runs on.
func (s *siege) stands(p *corev1.Pod) (goesOn func()) {
	s.Helper()
	nc := &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + p.Name}, Spec: v1alpha1.NodeCheckpointSpec{
		PodNamespace: p.Namespace, PodName: p.Name, PodUID: p.UID, Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}},
		SourceNode: p.Spec.NodeName, TargetNode: "elsewhere", Stage: v1alpha1.StageDiscard, Expires: metav1.NewTime(s.clock.Now().Add(time.Hour)),
	}}
	s.must(s.API.Create(s.Context(), nc))
	s.Cleanup(func() { apiserver.Empty(s, s.API, &v1alpha1.NodeCheckpointList{}) })
	return func() {
		s.Helper()
		nc.Status.Source = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointDiscarded}
		s.must(s.API.Status().Update(context.Background(), nc))
	}
}

// A pod that stands still for a migration has in memory what may be nowhere else: another one goes, though it is dearer.
func TestAPodThatStandsStillIsNoVictim(t *testing.T) {
	s := newSiege(t, "still")
	s.node("a", 2)
	small := s.run("small", "a", "Low", 50, 0)
	large := s.run("large", "a", "Low", 80, 1)
	s.wait("high", "High", 60)
	goesOn := s.stands(small)
	b := s.start(preempting)
	b.act("high")
	if plan := s.plan("high"); plan == nil || len(plan.Victims) != 1 || plan.Victims[0] != large.UID {
		t.Errorf("plan: %+v", plan)
	}
	goesOn()
	other := s.wait("other", "High", 60)
	b.look()
	b.act("other")
	if plan := s.plan(other.Name); plan == nil || len(plan.Victims) != 1 || plan.Victims[0] != small.UID {
		t.Errorf("it runs on; plan: %+v", plan)
	}
}

// Nor is one that stands still since the plan was made: the plan ends.
func TestAVictimThatStandsStillMeanwhile(t *testing.T) {
	s := newSiege(t, "meanwhile")
	s.node("a", 1)
	low := s.run("low", "a", "Low", 80, 0)
	s.wait("high", "High", 60)
	b := s.start(preempting)
	b.act("high")
	if plan := s.plan("high"); plan == nil || len(plan.Victims) != 1 {
		t.Fatalf("plan: %+v", plan)
	}
	goesOn := s.stands(low)
	for range 3 {
		b.look()
		b.act("high")
	}
	if plan := s.plan("high"); plan != nil || len(s.evicted) > 0 {
		t.Errorf("evicted %v, plan %+v", s.evicted, plan)
	}
	goesOn()
	s.clock.Step(10 * time.Minute)
	s.drama("high")
	if s.pod("low") != nil {
		t.Error("it runs on, and does not make room")
	}
}
