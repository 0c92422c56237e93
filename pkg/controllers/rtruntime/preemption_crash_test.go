package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// besieged is a node where two Low pods must go for pod high, and a bystander on another core.
func besieged(t testing.TB, namespace string) *siege {
	t.Helper()
	s := newSiege(t, namespace)
	s.node("a", 2)
	s.run("low-1", "a", "Low", 40, 0)
	s.run("low-2", "a", "Low", 40, 0)
	s.run("equal", "a", "High", 80, 1)
	s.wait("high", "High", 80)
	return s
}

// drama goes on until the pod is on a node, its plan is gone and its action over: the controller lives until its death, and
// then another one goes on. It returns how often a controller acted.
func (s *siege) drama(pod string) int {
	s.Helper()
	b := s.start(preempting)
	for acts := 1; acts < 60; acts++ {
		b.look()
		err := b.turn()
		if err == nil {
			_, err = b.Reconcile(s.Context(), request(s.namespace, pod))
		}
		if b.process.Dead() {
			b = s.start(preempting)
		} else {
			s.must(err)
		}
		s.clock.Step(200 * time.Millisecond)
		s.endPods()
		s.schedule(pod)
		if s.pod(pod).Spec.NodeName != "" && s.plan(pod) == nil && strings.Contains(s.order(pod), "Preempt Succeeded") {
			return acts
		}
	}
	s.Fatalf("pod %s has no node, or its plan does not end: %s", pod, s.pod(pod).Annotations)
	return 0
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// Whatever write the controller dies before, the next one ends what it began. Both victims are evicted, no other pod is,
// and no pod before the plan was written.
func TestAnotherControllerGoesOn(t *testing.T) {
	undisturbed := besieged(t, "undisturbed")
	undisturbed.drama("high")
	// The queue's lease, the plan, its action and that it runs, two evictions, the end of the plan and of the action.
	if undisturbed.Writes != 8 {
		t.Errorf("%d writes in an undisturbed run", undisturbed.Writes)
	}
	for _, at := range sampling.Points(t, 1, undisturbed.Writes, deathsPerStory) {
		name := fmt.Sprintf("dies-%d", at)
		t.Run(name, func(t *testing.T) {
			s := besieged(t, name)
			s.DieAt = at
			s.watch = func() {
				if s.plan("high") == nil || !strings.Contains(s.order("high"), "Preempt Running") {
					t.Errorf("evicted with plan %v and action %s", s.plan("high"), s.order("high"))
				}
			}
			s.drama("high")
			if got := s.running(); !slices.Equal(got, []string{"equal", "high"}) {
				t.Errorf("left: %v", got)
			}
			if slices.Sort(s.evicted); !slices.Equal(slices.Compact(slices.Clone(s.evicted)), []string{"low-1", "low-2"}) || len(s.evicted) > 2 {
				t.Errorf("evicted: %v", s.evicted)
			}
		})
	}
}

// Once a victim of its has gone a plan does not wait for a provisioner that may yet decide, as a new leader's has decided on nothing: that victim would have gone for
// nothing. It does wait for a node that one has decided on.
func TestAPlanThatHasBegunWaitsForNoDecision(t *testing.T) {
	for name, planned := range map[string]bool{"undecided": false, "planned": true} {
		t.Run(name, func(t *testing.T) {
			s := besieged(t, name)
			s.DieAt = 6 // before the second eviction
			b := s.start(preempting)
			for range 60 {
				b.look()
				err := b.turn()
				if err == nil {
					_, err = b.Reconcile(s.Context(), request(s.namespace, "high"))
				}
				if b.process.Dead() {
					s.inFlight, s.planned = true, planned
					b = s.start(preempting)
				} else {
					s.must(err)
				}
				s.clock.Step(200 * time.Millisecond)
				s.endPods()
				s.schedule("high")
			}
			if placed := s.pod("high").Spec.NodeName != ""; !s.inFlight || placed == planned || planned != (len(s.evicted) == 1) {
				t.Errorf("evicted: %v; placed: %t", s.evicted, placed)
			}
		})
	}
}
