package rtruntime_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// rival is a pod that waits for a core; owned: a ReplicaSet makes it again.
func (s *siege) rival(name string, criticality mcv1.Criticality, owned bool, gates ...string) {
	s.Helper()
	s.mckube(name, criticality, 40)
	p := s.shape(name)
	if owned {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: ptr.To(true)}}
	}
	for _, g := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
	}
	s.must(s.API.Create(s.Context(), p))
}

// Less critical pods that waited before the plan would take the room of its first victim: they go before it.
// Those with the gate, as critical ones, and those that nothing makes again stay.
func TestRivalsGoBeforeTheFirstVictim(t *testing.T) {
	s := besieged(t, "rivals")
	s.rival("peer-1", "Low", true)
	s.rival("peer-2", "Middle", true)
	s.rival("equal-2", "High", true)
	s.rival("held", "Low", true, mcv1.GateYield)
	s.rival("bare", "Low", false)
	s.drama("high")
	first := slices.Clone(s.evicted[:2])
	slices.Sort(first)
	if len(s.evicted) != 4 || !slices.Equal(first, []string{"peer-1", "peer-2"}) {
		t.Errorf("evicted: %v", s.evicted)
	}
	if got, want := s.running(), []string{"bare", "equal", "equal-2", "held", "high"}; !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
}
