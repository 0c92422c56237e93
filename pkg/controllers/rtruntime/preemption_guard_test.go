package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// greedy plays a scheduler that gives room to pod bare before any other, as the real one may: both have the same priority.
func (s *siege) greedy() {
	s.Helper()
	snapshot := s.start(preempting).store.Snapshot()
	for _, name := range []string{"bare", "high"} {
		view, ok := snapshot.PodNamed(s.namespace, name)
		if !ok || view.NodeName != "" {
			continue
		}
		n, _ := snapshot.NodeView(s.namespace + "-a")
		core, gates := snapshot.BestCoreOn(n.Name, view.Governed[0].Server)
		if accepts, _ := snapshot.Accepts(n, view); !accepts || len(gates) > 0 {
			continue
		}
		s.place(name, core.Node, core.Core)
		snapshot = s.start(preempting).store.Snapshot()
	}
}

// place gives a pod a core, as the scheduler does, and binds it.
func (s *siege) place(name, node string, core int) {
	s.Helper()
	p := s.pod(name)
	claim := statetest.Claim(p, name+"-claim", "app", node, core, 801_000)
	given := claim.Status
	given.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000"))
	claim.UID = ""
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	s.must(s.API.Create(s.Context(), claim))
	claim.Status = given
	s.must(s.API.Status().Update(s.Context(), claim))
	s.bind(name, node)
}

// guarded tells whether the node keeps pods off.
func (s *siege) guarded() bool {
	s.Helper()
	n := &corev1.Node{}
	s.must(s.API.Get(s.Context(), client.ObjectKey{Name: s.namespace + "-a"}, n))
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == mcv1.TaintMakingRoom })
}

// raid is a drama in which pod bare, which nothing makes again, waits for the same room, and the scheduler prefers it.
func (s *siege) raid() {
	s.Helper()
	b := s.start(preempting)
	for range 60 {
		b.look()
		err := b.turn()
		if err == nil {
			_, err = b.Reconcile(s.Context(), request(s.namespace, "high"))
		}
		if b.process.Dead() {
			b = s.start(preempting)
		} else {
			s.must(err)
		}
		s.clock.Step(200 * time.Millisecond)
		s.endPods()
		s.greedy()
		if s.pod("high").Spec.NodeName != "" && s.plan("high") == nil && strings.Contains(s.order("high"), "Preempt Succeeded") {
			return
		}
	}
	s.Fatalf("pod high has no node, or its plan does not end: %s; bare is on %q", s.pod("high").Annotations, s.pod("bare").Spec.NodeName)
}

// withBare is besieged, and pod bare.
func withBare(t testing.TB, namespace string) *siege {
	t.Helper()
	s := besieged(t, namespace)
	s.rival("bare", "Low", false)
	return s
}

// A less critical pod that waited already, and that nothing makes again, stays, and does not take the room.
func TestBarePodsDoNotTakeTheRoom(t *testing.T) {
	s := withBare(t, "bare")
	s.watch = func() {
		if !s.guarded() {
			t.Error("evicted while bare might have come")
		}
	}
	s.raid()
	if got := s.running(); !slices.Equal(got, []string{"bare", "equal", "high"}) {
		t.Errorf("left: %v", got)
	}
	if s.pod("bare").Spec.NodeName != "" || s.guarded() {
		t.Errorf("bare is on node %q, the node is guarded: %t", s.pod("bare").Spec.NodeName, s.guarded())
	}
}

// Whatever write the controller dies before: bare never has the room, and the node is open at the end.
func TestAnotherControllerOpensTheNodeAgain(t *testing.T) {
	undisturbed := withBare(t, "undisturbed-guard")
	undisturbed.raid()
	for _, at := range sampling.Points(t, 1, undisturbed.Writes, deathsPerStory) {
		name := fmt.Sprintf("guard-%d", at)
		t.Run(name, func(t *testing.T) {
			s := withBare(t, name)
			s.DieAt = at
			s.raid()
			if s.pod("bare").Spec.NodeName != "" || s.guarded() || len(s.evicted) > 2 {
				t.Errorf("bare is on node %q, guarded: %t, evicted %v", s.pod("bare").Spec.NodeName, s.guarded(), s.evicted)
			}
		})
	}
}

// The node loop opens a node whose plan has gone with its pod.
func TestNodesAreOpenedWhenTheirPlanIsGone(t *testing.T) {
	s := withBare(t, "forsaken")
	b := s.start(preempting)
	for range 20 {
		b.look()
		b.act("high")
		s.clock.Step(200 * time.Millisecond)
		if s.guarded() {
			break
		}
	}
	if !s.guarded() {
		t.Fatal("the node is not guarded")
	}
	open := func() *besieger {
		b := s.start(rtruntime.OpenNodes)
		_, err := b.Reconcile(s.Context(), request("", s.namespace+"-a"))
		s.must(err)
		return b
	}
	if open(); !s.guarded() {
		t.Error("opened while the plan lasts")
	}
	s.must(s.API.Delete(s.Context(), s.pod("high"), client.GracePeriodSeconds(0)))
	if open(); s.guarded() {
		t.Error("guarded for ever")
	}
}
