package orchestration_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// The controller that does a pod's own migration tells the pod what is done to it. A pod that goes for another's sake is told
// that its action has begun, and so is the pod for which it goes: the ladder moves one pod for another.
func TestAMigrationThatBeginsIsToldForOthersSake(t *testing.T) {
	started := []string{"ActionStarted"}
	for kind, c := range map[string]struct{ moved, beneficiary []string }{
		"its own": {}, "another pod's": {started, started}, "a McKube's": {started, nil},
	} {
		t.Run(kind, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			s.node("n2")
			p := s.spawn()
			s.turns(p, 1)
			pod, other := s.pod("a1"), s.pod("b1")
			r := s.request(rules.Migrate, "First", "n1", pod)
			r.TargetNode = "n2"
			switch kind {
			case "its own":
				r.Beneficiary = v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Criticality: "Low"}
			case "another pod's":
				r.Beneficiary = v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: other.Namespace, Name: other.Name, UID: other.UID, Criticality: "High"}
			}
			s.conduct["First"] = conduct{hangs: true}
			s.submit(p, r)
			s.turns(p, 2)
			s.is("First Running")
			if moved, beneficiary := s.told.on("a1"), s.told.on("b1"); !slices.Equal(moved, c.moved) || !slices.Equal(beneficiary, c.beneficiary) {
				t.Errorf("the pod that goes is told %v, the other %v; want %v and %v", moved, beneficiary, c.moved, c.beneficiary)
			}
		})
	}
}
