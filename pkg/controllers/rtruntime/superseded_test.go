package rtruntime_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// A loop is woken several times before its cache shows what it has written: what the API server would refuse is not sent.
func TestNothingIsWrittenToAVersionThatWasWrittenOver(t *testing.T) {
	c := newCluster(t)
	sent := 0
	c.Client = interceptor.NewClient(apiserver.Client(t, apiserver.Scheme(t)), interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.RTNode); ok {
				sent++
			}
			return api.Patch(ctx, o, patch, opts...)
		},
	})
	n := c.node("n", 2)
	l := c.loop()
	l.lookAndAct(n.Name)
	for round, name := range []string{"a", "b"} {
		c.run(name, n.Name, "High", 20, 40, 1)
		l.look()
		l.act(n.Name)
		for range 3 {
			if wait := l.act(n.Name); wait <= 0 || wait > time.Second {
				t.Errorf("with a cache that is behind it looks again after %s", wait)
			}
		}
		l.lookAndAct(n.Name)
		if r := c.rtNode(n.Name); len(r.Spec.Servers) != round+1 || sent != round+1 {
			t.Errorf("%d updates were sent for %d containers: %s", sent, round+1, spec(r.Spec))
		}
	}
}

// An agent reports each time that it has applied something: that is no reason to write the spec twice. Another spec is.
func TestASpecIsWrittenOverWhatAnAgentReports(t *testing.T) {
	c := newCluster(t)
	n := c.node("n", 2)
	first, second := c.loop(), c.loop()
	first.lookAndAct(n.Name)
	c.run("a", n.Name, "High", 20, 40, 1)
	first.look()
	second.look()
	r := c.rtNode(n.Name)
	r.Status.AgentVersion = "reports"
	c.must(c.Status().Update(t.Context(), r))
	if wait := first.act(n.Name); wait > 0 && wait <= time.Second || len(c.rtNode(n.Name).Spec.Servers) != 1 {
		t.Errorf("looks again after %s; %s", wait, spec(c.rtNode(n.Name).Spec))
	}
	c.run("b", n.Name, "High", 20, 40, 0)
	before := c.rtNode(n.Name)
	if wait := second.act(n.Name); wait <= 0 || wait > time.Second {
		t.Errorf("over a spec that it has not read it looks again after %s", wait)
	}
	if r := c.rtNode(n.Name); r.ResourceVersion != before.ResourceVersion || r.Status.AgentVersion != "reports" || len(r.OwnerReferences) != 1 {
		t.Errorf("written over what it has not read: %+v", r)
	}
}

// The same of the status of a McKube.
func TestNoStatusIsWrittenToAVersionThatWasWrittenOver(t *testing.T) {
	o := newCluster(t).office()
	o.mckube("m", "p", 20, 20)
	o.settle(nil, "m")
	o.change("m", func(m *mcv1.McKube) { m.Spec.RTSettings.RuntimeHi = 30_000 })
	o.look()
	for round := range 3 {
		writes := o.Writes
		result, err := o.mckubes.Reconcile(t.Context(), reconcile.Request{NamespacedName: o.key("m")})
		o.must(err)
		if round > 0 && (o.Writes != writes || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second) {
			t.Errorf("%d writes of what was written; looks again after %s", o.Writes-writes, result.RequeueAfter)
		}
	}
	o.settle(nil, "m")
	if m := o.get("m"); m.Status.ObservedGeneration != m.Generation {
		t.Errorf("generation %d is observed, of %d", m.Status.ObservedGeneration, m.Generation)
	}
}
