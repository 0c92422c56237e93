package inventory

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/karpenter/pkg/apis"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// nodeClaimVersion is the API version of NodePools and NodeClaims in owner references.
var nodeClaimVersion = schema.GroupVersion{Group: apis.Group, Version: "v1"}.String()

// maxMessage bounds texts that come from elsewhere.
const maxMessage = 512

func truncated(text string) string {
	if len(text) > maxMessage {
		return text[:maxMessage] + "..."
	}
	return text
}

// setAvailable sets condition Available; it is true when the machine is free.
func setAvailable(m *Machine, now time.Time, v verdict) {
	setCondition(m, metav1.Condition{
		Type: v1alpha1.ConditionMachineAvailable, Status: statusOf(v.reason == v1alpha1.ReasonMachineFree),
		Reason: v.reason, Message: v.message,
	}, now)
	m.Status.Phase = phase(m)
}

func setCondition(m *Machine, condition metav1.Condition, now time.Time) {
	condition.ObservedGeneration, condition.LastTransitionTime = m.Generation, metav1.NewTime(now)
	meta.SetStatusCondition(&m.Status.Conditions, condition)
}

func statusOf(holds bool) metav1.ConditionStatus {
	if holds {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func conditionTrue(m *Machine, kind string) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, kind)
}

func reasonOf(m *Machine, kind string) string {
	if condition := meta.FindStatusCondition(m.Status.Conditions, kind); condition != nil {
		return condition.Reason
	}
	return ""
}

func messageOf(m *Machine, kind string) string {
	if condition := meta.FindStatusCondition(m.Status.Conditions, kind); condition != nil {
		return condition.Message
	}
	return "nothing is known yet"
}

// phase sums a machine's status up in a word.
func phase(m *Machine) string {
	if m.Status.Claim != nil {
		return string(m.Status.Claim.Stage)
	}
	return reasonOf(m, v1alpha1.ConditionMachineAvailable)
}

// count is what machines do.
type count struct{ all, free, claimed, unavailable int }

func counted(machines []*Machine) count {
	c := count{all: len(machines)}
	for _, m := range machines {
		switch {
		case m.Status.Claim != nil:
			c.claimed++
		case claimable(m):
			c.free++
		default:
			c.unavailable++
		}
	}
	return c
}

// census says what machines do.
func census(machines []*Machine) string {
	c := counted(machines)
	return fmt.Sprintf("of %d machines %d are free, %d claimed and %d unavailable", c.all, c.free, c.claimed, c.unavailable)
}
