package provisioning_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// The queue takes steps of several actions at a time. Two that are admitted together do not take the room under a NodePool's limits twice: while
// one is asking for its node the other waits, and then sees that there is none left.
func TestTwoActionsAtOnceKeepTheLimitsOfANodePool(t *testing.T) {
	s := newSite(t, weighted("edge", 1, only("box"), func(p *karpv1.NodePool) { p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: *quantity("3")} }))
	s.node("source", 2)
	first := s.request(s.runOn("first", "source", 0, "High", 60))
	second := s.request(s.runOn("second", "source", 1, "High", 60))
	second.Cause = "pressure/y/1"
	p := s.spawn()
	names := []string{p.submit(first), p.submit(second)}
	s.must(p.decide())
	for _, name := range names {
		if got := s.action(name).Status.Phase; rules.Phase(got) != rules.Running {
			t.Fatalf("action %s is %s: they are not under way together", name, got)
		}
	}
	step := func(name string) {
		if _, err := p.queue.Loops()[1].Reconcile(p.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Errorf("a step of %s: %v", name, err)
		}
	}
	p.ordering = func() { step(names[1]) }
	step(names[0])
	if n := len(s.claims()); n != 1 {
		t.Fatalf("%d NodeClaims were asked for, and the limit leaves room for one", n)
	}
	p.turns(12)
	s.ends(names[0], rules.Succeeded, "is ready: box")
	s.ends(names[1], rules.RolledBack, "exceed limits for nodepool")
	if n := len(s.claims()); n != 1 {
		t.Errorf("%d NodeClaims, and the limit leaves room for one", n)
	}
}
