package migration_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
)

// hold keeps the copy from going, as a node does that no longer answers; hold(false) ends that.
func (w *town) hold(keep bool) {
	w.Helper()
	for _, p := range w.pods() {
		if p.Annotations[mcv1.AnnotationReplaces] == "" {
			continue
		}
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == "example.test/away" })
		if keep {
			p.Finalizers = append(p.Finalizers, "example.test/away")
		}
		w.must(w.api.Update(w.Context(), &p))
	}
}

// leftovers lets the loop look at every NodeCheckpoint, and says which are left.
func (p *process) leftovers() []v1alpha1.NodeCheckpoint {
	p.Helper()
	list := &v1alpha1.NodeCheckpointList{}
	p.must(p.api.List(p.Context(), list))
	l := &migration.Leftovers{Dependencies: p.dependencies()}
	for i := range list.Items {
		if _, err := l.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}); err != nil {
			p.Fatal(err)
		}
	}
	return list.Items
}

// A rollback that could not end in its time, as the copy's node did not answer, ends when it can: the source stands still until
// nothing is left of the copy, or its node is gone, and then runs on.
func TestARollbackThatTakesTooLong(t *testing.T) {
	t.Parallel()
	for _, nodeGoes := range []bool{false, true} {
		w := newTown(t, 1)
		w.rollout(1)
		w.able()
		w.agents.cold = true
		w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 12 * time.Second })
		source := w.pods()[0]
		p := w.start()
		hold := at(v1alpha1.MigrationVerifying, func(w *town) { w.hold(true) })(w)
		for turn := 0; turn < 100 && !w.move().Status.Phase.Over(); turn++ {
			hold(turn, p)
			w.must(p.turn())
			w.must(p.loop())
			p.leftovers()
			w.lonely()
		}
		if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "could not be undone") || !w.agents.stopped[source.UID] {
			t.Fatalf("it is %s: %s; stopped %v", o.Status.Phase, o.Status.Message, w.agents.stopped)
		}
		w.clock.Step(time.Hour)
		p.live()
		if len(p.leftovers()) != 1 || !w.agents.stopped[source.UID] {
			t.Error("the source was let run beside its copy")
		}
		if nodeGoes {
			w.must(w.api.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name("b")}}))
			w.agents.gone = true
		} else {
			w.hold(false)
		}
		for range 5 {
			p.live()
			p.leftovers()
		}
		if list := p.leftovers(); len(list) > 0 || w.agents.stopped[source.UID] {
			t.Errorf("node gone: %t: %d NodeCheckpoints are left, stopped %v", nodeGoes, len(list), w.agents.stopped)
		}
		w.hold(false)
	}
}

// While its action goes on, the API server is not asked about a NodeCheckpoint each time that its agents have come further.
func TestANodeCheckpointUnderWayCostsNoRequest(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.rollout(1)
	w.able()
	w.asks(w.first(), by("Checkpoint"))
	p := w.start()
	p.until(v1alpha1.MigrationVerifying)
	list, seen := &v1alpha1.NodeCheckpointList{}, 0
	w.must(w.api.List(t.Context(), list))
	l := &migration.Leftovers{Dependencies: p.unasked()}
	for _, nc := range list.Items {
		if nc.Spec.PodNamespace != w.namespace {
			continue // of another town
		}
		seen++
		if result, err := l.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&nc)}); err != nil || result.RequeueAfter <= 0 {
			t.Errorf("looks again after %s, %v", result.RequeueAfter, err)
		}
	}
	if seen != 1 {
		t.Errorf("%d NodeCheckpoints", seen)
	}
}

// What the controller has not created is left alone.
func TestNodeCheckpointsOfOthers(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	nc := &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: v1alpha1.NodeCheckpointSpec{
		PodNamespace: w.namespace, PodName: "p", PodUID: "1", Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}},
		SourceNode: "x", TargetNode: "y", Stage: v1alpha1.StageTransfer, Expires: metav1.Now(),
	}}
	w.must(w.api.Create(t.Context(), nc))
	p := w.start()
	p.leftovers()
	if list := p.leftovers(); len(list) != 1 || list[0].Spec.Stage != v1alpha1.StageTransfer {
		t.Errorf("%+v", list)
	}
}

// A Job's pod that stays stopped for no migration any longer is evicted like others: pods of Jobs are evicted one after the other,
// whichever loop does it.
func TestAJobsPodThatStaysStoppedAfterItsMigration(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.house("Job")
	source := w.pods()[0]
	w.agents.stopped[source.UID] = true // before the NodeCheckpoint came to stage Release
	nc := &v1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Name: "left-" + w.namespace, Labels: map[string]string{v1alpha1.LabelMigrationAction: "left-" + w.namespace}},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: w.namespace, PodName: source.Name, PodUID: source.UID, Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}},
			SourceNode: w.name("a"), TargetNode: w.name("b"), Stage: v1alpha1.StageRelease, Expires: metav1.Now(),
		},
	}
	w.must(w.api.Create(t.Context(), nc))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l := &migration.Leftovers{Dependencies: w.start().dependencies()}
	_, err := l.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(nc)})
	if err != nil || len(w.evicted) != 1 {
		t.Errorf("evicted %v: %v", w.evicted, err)
	}
	w.must(w.api.Delete(t.Context(), nc))
}
