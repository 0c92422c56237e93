package migration_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A process that has died writes and reads nothing any longer, although it tries again, past its cache, as a step does after a failed
// write. Else the sweeps would show nothing.
func TestTheDeadStayDead(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		w := newTown(t, 1)
		w.asks("rt-1", by("Restart"))
		w.writes, w.dieAt, w.dieBefore = 0, 1, before
		p := w.start()
		first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "first"}}
		second := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "second"}}
		for _, err := range []error{
			p.client.Create(t.Context(), first), p.client.Create(t.Context(), second),
			p.client.Get(t.Context(), client.ObjectKeyFromObject(w.owner), w.owner.DeepCopy()), p.reader.List(t.Context(), &v1alpha1.PodMigrationList{}), p.loop(),
		} {
			if !errors.Is(err, errDied) {
				t.Errorf("dies before its write: %t: of what it asks then it is told %v", before, err)
			}
		}
		list := &corev1.ConfigMapList{}
		w.must(w.api.List(t.Context(), list))
		made := 0
		for _, o := range list.Items {
			if o.Name == "first" || o.Name == "second" {
				made++
			}
		}
		if want := map[bool]int{true: 0, false: 1}[before]; made != want || w.writes != 1 || w.start().client.Create(t.Context(), second) != nil {
			t.Errorf("dies before its write: %t: %d of its writes are made, want %d; %d are counted", before, made, want, w.writes)
		}
	}
}
