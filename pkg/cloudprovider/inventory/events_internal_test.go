package inventory

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Karpenter's recorder passes over an Event whose reason and dedupe values it has seen, whatever object it is about.
func TestEventsOnTwoObjectsAreNotTakenForOne(t *testing.T) {
	m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}
	m.Status.Claim = &v1alpha1.MachineClaim{UID: "uid"}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}}
	list := stuckEvents(m, claim, errors.New("no route"))
	if len(list) != 2 || list[0].DedupeValues[0] == list[1].DedupeValues[0] {
		t.Errorf("events %+v", list)
	}
}
