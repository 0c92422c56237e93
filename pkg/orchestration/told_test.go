package orchestration_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A pod whose own migration begins is told what is done to it by whoever does that; one that goes for others' sake is told that its action has begun.
func TestAMigrationThatBeginsIsToldForOthersSake(t *testing.T) {
	for kind, want := range map[string][]string{"Pod": nil, "McKube": {"ActionStarted"}} {
		t.Run(kind, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			s.node("n2")
			p := s.spawn()
			s.turns(p, 1)
			pod := s.pod("a1")
			r := s.request(rules.Migrate, "First", "n1", pod)
			r.TargetNode = "n2"
			if kind == "Pod" {
				r.Beneficiary = v1alpha1.ActionBeneficiary{Kind: kind, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Criticality: "Low"}
			}
			s.conduct["First"] = conduct{hangs: true}
			s.submit(p, r)
			s.turns(p, 2)
			s.is("First Running")
			if got := s.told.on("a1"); !slices.Equal(got, want) {
				t.Errorf("the pod is told %v, want %v", got, want)
			}
		})
	}
}
