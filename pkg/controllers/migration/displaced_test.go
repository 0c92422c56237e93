package migration_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// one lets the loop over PodMigrations go on with one.
func (p *process) one(name string) *v1alpha1.PodMigration {
	p.Helper()
	o := &v1alpha1.PodMigration{}
	key := client.ObjectKey{Namespace: p.namespace, Name: name}
	_, err := p.migrations.Reconcile(p.Context(), reconcile.Request{NamespacedName: key})
	p.must(err)
	p.must(p.api.Get(p.Context(), key, o))
	return o
}

// shuts cordons a node, or opens it.
func (w *town) shuts(node string, yes bool) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	n.Spec.Unschedulable = yes
	w.must(w.api.Update(w.Context(), n))
}

// A migration whose target will not do, and which a limit keeps from another, waits for that as long as it may wait for its turn, and
// while it is wanted.
func TestADisplacedMigrationDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		limit        time.Duration
		aborted      bool
		says         string
		first, until time.Duration
	}{
		"too long": {limit: 20 * time.Second, says: "it has waited for its turn for 20s: limit perNode is reached", first: 15 * time.Second, until: 30 * time.Second},
		"unwanted": {limit: time.Hour, aborted: true, says: "says abort; node", until: time.Minute},
	} {
		w := newTown(t, 1)
		w.gating, w.crowds = true, map[string]bool{}
		w.node("c", 2)
		w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.WaitTimeout = &metav1.Duration{Duration: c.limit} })
		p := w.start()
		began := w.clock.Now()
		w.must(p.turn())
		if o := p.one("move-rt-1"); o.Status.Target == nil || o.Status.Target.Node != w.name("b") {
			t.Fatalf("%s: it was decided otherwise: %+v", what, o.Status)
		}
		w.crowd("b")
		p.look()
		for _, name := range []string{"x", "y"} { // the most that may be on their way to a node, unless its policy says so
			other := w.asks(name)
			other.Status.Phase, other.Status.Strategy = v1alpha1.MigrationRestoring, v1alpha1.StrategyRestart
			other.Status.Source, other.Status.Target = &v1alpha1.MigrationEnd{PodName: name, Node: "elsewhere"}, &v1alpha1.MigrationEnd{Node: w.name("c")}
			w.must(w.api.Status().Update(w.Context(), other))
		}
		waits, o := false, p.one("move-rt-1")
		for range 100 {
			w.must(p.turn())
			if o = p.one("move-rt-1"); o.Status.Phase.Over() {
				break
			}
			if now := strings.HasPrefix(o.Status.Message, "limit perNode is reached"); now && !waits && c.aborted {
				o.Spec.Abort = true
				w.must(w.api.Update(w.Context(), o))
			} else {
				waits = waits || now
			}
		}
		took := w.clock.Now().Sub(began)
		if o.Status.Phase != v1alpha1.MigrationAborted || !strings.Contains(o.Status.Message, c.says) || !strings.Contains(o.Status.Message, "was tried before") {
			t.Errorf("%s: it is %s: %s", what, o.Status.Phase, o.Status.Message)
		}
		if took < c.first || took > c.until || waits == c.aborted || w.running() != "rt-1@a" {
			t.Errorf("%s: it took %s; it has said for what it waits: %t; %s", what, took, waits, w.running())
		}
		p.free()
	}
}

// Of two whose targets would not do, and of which each may go to the other's only, both do: none holds what it has given up.
func TestDisplacedMigrationsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	w.node("c", 2)
	w.node("d", 2)
	w.scale(2)
	w.bind(w.make(), "d", 0)
	w.judge.policy = &v1alpha1.MigrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: v1alpha1.MigrationPolicySpec{Limits: &v1alpha1.MigrationLimits{PerNode: ptr.To[int32](1)}},
	}
	p := w.start()
	w.shuts("a", true)
	w.shuts("d", true)
	w.must(p.turn())
	for _, c := range []struct{ pod, target, other string }{{"rt-1", "b", "c"}, {"rt-2", "c", "b"}} {
		w.shuts(c.other, true)
		p.look()
		w.asks(c.pod, by("Restart"))
		p.one("move-" + c.pod)
		if o := p.one("move-" + c.pod); o.Status.Target == nil || o.Status.Target.Node != w.name(c.target) {
			t.Fatalf("it was decided otherwise: %+v", o.Status)
		}
		w.shuts(c.other, false)
	}
	w.shuts("b", true)
	w.shuts("c", true)
	for range 4 {
		w.must(p.turn())
	}
	w.shuts("b", false)
	w.shuts("c", false)
	for range 60 {
		w.must(p.turn())
		w.must(p.loop())
	}
	for _, o := range w.moves() {
		if to := map[string]string{"move-rt-1": "c", "move-rt-2": "b"}[o.Name]; o.Status.Phase != v1alpha1.MigrationSucceeded || o.Status.Target.Node != w.name(to) {
			t.Errorf("%s is %s: %s", o.Name, o.Status.Phase, o.Status.Message)
		}
	}
	w.rest(p)
}
