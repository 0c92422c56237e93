package ladder_test

import (
	"errors"
	"fmt"
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
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// A policy of the cluster that forbids the writes of the ladder leaves the node without an answer. The controller publishes and
// counts that once. Once the policy allows the writes the escalation continues.
func TestForbiddenWritesAreReported(t *testing.T) {
	for name, like := range map[string]client.Object{
		"the condition": &v1alpha1.RTNode{}, "the taint": &corev1.Node{}, "the note on a McKube": &mcv1.McKube{}, "the action": &v1alpha1.RTAction{},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("a", 2)
			s.node("b", 1)
			s.sick("a")
			s.forbids(like)
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
			for left := 8; left > 0 && len(s.actions()) == 0; left-- {
				turns(1)
			}
			if n := unansweredNodes(t) - before; n != 0 || len(s.actions()) == 0 {
				t.Errorf("once it is allowed: %v nodes without an answer, actions %q", n, s.actions())
			}
		})
	}
}

// forbids makes the cluster forbid writes of objects like one.
func (s *stage) forbids(like client.Object) {
	s.policy = func(o client.Object) error {
		if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", like) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, o.GetName(), errors.New("only its owner may"))
		}
		return nil
	}
}

// unanswered are the published reasons why nodes have no answer.
func (s *stage) unanswered() (out []string) {
	for _, e := range s.told.list {
		if _, node := e.InvolvedObject.(*corev1.Node); node && e.Reason == "PressureUnanswered" {
			out = append(out, e.Message)
		}
	}
	return out
}

// A pressure that ends before its condition may be written is counted no longer.
func TestObsoleteForbiddenWriteIsNotCounted(t *testing.T) {
	s := newStage(t)
	s.node("a", 2)
	s.sick("a")
	s.forbids(&v1alpha1.RTNode{})
	before, p := unansweredNodes(t), s.spawn()
	for range 6 {
		s.misses["sick"] += 3
		s.turns(p, 1)
	}
	if n := unansweredNodes(t) - before; n != 1 || len(s.unanswered()) != 1 {
		t.Fatalf("%v nodes without an answer, told %q", n, s.unanswered())
	}
	s.turns(p, 15)
	if n := unansweredNodes(t) - before; n != 0 {
		t.Errorf("%v nodes without an answer, and nobody suffers", n)
	}
}

// The controller also reports a taint that it may not remove.
func TestForbiddenTaintRemovalIsReported(t *testing.T) {
	s := newStage(t)
	s.node("a", 2)
	s.sick("a")
	before, p := unansweredNodes(t), s.spawn()
	for range 8 {
		s.misses["sick"] += 3
		s.turns(p, 1)
	}
	s.forbids(&corev1.Node{})
	known := len(s.unanswered())
	s.turns(p, 60)
	if told := s.unanswered()[known:]; len(told) != 1 || !strings.Contains(told[0], "tainting node") || !strings.Contains(told[0], "only its owner may") {
		t.Errorf("%s, told %q", s.pressure("a"), told)
	}
	s.policy = nil
	s.turns(p, 10)
	if got, n := s.pressure("a"), unansweredNodes(t)-before; got != ladder.StageEnded || n != 0 {
		t.Errorf("once it is allowed: %s, %v nodes without an answer", got, n)
	}
}
