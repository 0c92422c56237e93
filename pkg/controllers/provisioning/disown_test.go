package provisioning_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// ordinary has a node be opened whose agent never measures, until it serves ordinary pods, and one run there.
func (s *site) ordinary(p *process) (action string) {
	s.Helper()
	s.node("source", 1)
	s.mute = true
	r := s.request(s.run("control", "source", "High", 60))
	r.Timeout = 20 * time.Minute
	action = p.submit(r)
	p.turns(6)
	s.clock.Step(6 * time.Minute) // beyond the calibration hook's
	p.turns(3)
	claims := s.claims()
	if len(claims) != 1 || !claims[0].StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
		s.Fatalf("%d NodeClaims, or not registered", len(claims))
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "shop", UID: "shop"}}
	pod.Spec = corev1.PodSpec{NodeName: claims[0].Status.NodeName, Containers: []corev1.Container{{Name: "app", Image: "none"}}}
	s.create(pod)
	return action
}

// asAnyOther expects the one node to stay, and nobody to own it.
func (s *site) asAnyOther(p *process) {
	s.Helper()
	p.keep()
	claims := s.claims()
	if len(claims) != 1 || !claims[0].DeletionTimestamp.IsZero() {
		s.Fatalf("%d NodeClaims, or one is being deleted: want the one of the node where a pod runs", len(claims))
	}
	n := &corev1.Node{}
	s.must(s.api.Get(s.ctx, client.ObjectKey{Name: claims[0].Status.NodeName}, n))
	for _, o := range []client.Object{&claims[0], n} {
		if by := o.GetAnnotations()[v1alpha1.AnnotationAction]; by != "" {
			s.Errorf("%T is still that of action %s", o, by)
		}
	}
}

// What is given up stays where ordinary pods run: to close it would pass by the NodePool's budgets.
func TestANodeThatIsGivenUpStaysWhereOrdinaryPodsRun(t *testing.T) {
	for name, giveUp := range map[string]func(*process, string){
		"late":      func(p *process, _ string) { p.clock.Step(20 * time.Minute) },
		"withdrawn": func(p *process, action string) { p.must(p.queue.Withdraw(p.ctx, action, "the pressure has gone")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nodePool("edge"))
			p := s.spawn()
			action := s.ordinary(p)
			giveUp(p, action)
			p.turns(3)
			s.ends(action, rules.RolledBack, "stays, as that of a node like any other: pods run there")
			s.asAnyOther(p)
		})
	}
}

// Whoever dies before that is known says the same in the end.
func TestANodeThatIsGivenUpStaysWhateverDies(t *testing.T) {
	whateverDies(t, func(t *testing.T, f fate, at int) int {
		s := newSite(t, nodePool("edge"))
		p := s.spawn()
		action := s.ordinary(p)
		s.must(p.queue.Withdraw(s.ctx, action, "the pressure has gone"))
		writes := p.strikes(f, at, 8)
		s.ends(action, rules.RolledBack, "stays, as that of a node like any other: pods run there")
		s.asAnyOther(p)
		return writes
	})
}

// One that came too late, of an action that is over, stays as well where pods run.
func TestTheKeeperLeavesANodeWhereOrdinaryPodsRun(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	p := s.spawn()
	action := s.ordinary(p)
	o := s.action(action)
	o.Status.Phase = v1alpha1.ActionPhase(rules.RolledBack)
	s.must(s.api.Status().Update(s.ctx, o))
	s.asAnyOther(p)
	if got := slices.Sorted(slices.Values(p.nominations())); len(got) > 0 {
		t.Errorf("%v are kept", got)
	}
}

// An action by hand, as users write it, is undone when it is deleted: no node is left of it.
func TestAnActionByHandThatIsDeletedLeavesNoNode(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	s.node("source", 1)
	p := s.spawn()
	control := s.run("control", "source", "High", 60)
	s.mute = true
	p.turns(1)
	s.create(&v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		Spec: v1alpha1.RTActionSpec{
			Kind: "OpenNode", Reason: "ByHand", Cause: "by-hand", Node: "source", Pods: []v1alpha1.ActionPod{control},
			Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Pod", Namespace: control.Namespace, Name: control.Name, Criticality: "High"},
			Timeout:     metav1.Duration{Duration: 10 * time.Minute},
		},
	})
	p.turns(5)
	if n := len(s.claims()); n != 1 {
		t.Fatalf("%d NodeClaims", n)
	}
	s.must(s.api.Delete(s.ctx, s.action("by-hand")))
	p.turns(10)
	if n := len(s.claims()); n != 0 {
		t.Errorf("%d NodeClaims are left", n)
	}
	if err := s.api.Get(s.ctx, client.ObjectKey{Name: "by-hand"}, &v1alpha1.RTAction{}); !apierrors.IsNotFound(err) {
		t.Errorf("the action is there: %v", err)
	}
}
