package ladder_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// A policy of the cluster that forbids what the ladder has to write leaves the node without an answer: that is told, once, and counted; once it
// allows it the climb goes on.
func TestAPolicyThatForbidsTheLaddersWritesIsTold(t *testing.T) {
	for name, forbidden := range map[string]func(client.Object) bool{
		"the note on a McKube": func(o client.Object) bool { _, is := o.(*mcv1.McKube); return is },
		"the action":           func(o client.Object) bool { _, is := o.(*v1alpha1.RTAction); return is },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("a", 2)
			s.node("b", 1)
			s.sick("a")
			s.policy = func(o client.Object) error {
				if forbidden(o) {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, o.GetName(), errors.New("only its owner may"))
				}
				return nil
			}
			before, p := unansweredNodes(t), s.spawn()
			turns := func(n int) {
				for range n {
					s.misses["sick"] += 3
					s.turns(p, 1)
				}
			}
			turns(15)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-a"}}
			told := slices.DeleteFunc(slices.Clone(s.told.list), func(e karpenterevents.Event) bool { return e.Reason != "PressureUnanswered" })
			if len(told) == 0 || !strings.Contains(told[0].Message, "only its owner may") {
				t.Fatalf("told %v", s.told.chain(node))
			}
			if n := len(slices.DeleteFunc(told, func(e karpenterevents.Event) bool { return e.InvolvedObject.(client.Object).GetName() != node.Name })); n != 1 {
				t.Errorf("told %d times of the node", n)
			}
			if n := unansweredNodes(t) - before; n != 1 || len(s.actions()) != 0 {
				t.Errorf("%v nodes without an answer, actions %q", n, s.actions())
			}
			s.policy = nil
			turns(5)
			if n := unansweredNodes(t) - before; n != 0 || len(s.actions()) == 0 {
				t.Errorf("once it is allowed: %v nodes without an answer, actions %q", n, s.actions())
			}
		})
	}
}
