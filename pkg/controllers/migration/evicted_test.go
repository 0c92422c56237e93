package migration_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// The controller dies before it has stored that it evicted the pod, and the next one starts ten minutes later. It tells for how long no
// pod served from what is left of the pod. If nothing is left it does not tell: counted from its own start the time would be too short.
func TestADeathOverAnEviction(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		town func(w *town)
		ends bool
	}{"ends": {func(*town) {}, true}, "is gone": {func(*town) {}, false}, "ends, of nobody": {bare, true}, "is gone, of nobody": {bare, false}} {
		w := newTown(t, 1)
		w.gating = true
		c.town(w)
		source := w.first()
		if c.ends {
			w.detain(source, true)
		}
		w.asks(source, by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = time.Hour })
		w.lazy = true
		died, since := 0, time.Time{}
		o := w.migrate(func(_ int, p *process) {
			switch {
			case len(w.evicted) == 0:
			case died == 0:
				died++
				pod := &corev1.Pod{}
				if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: source}, pod); err == nil {
					since = pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
				}
				p.dead.Store(true)
				w.clock.Step(10 * time.Minute)
			case died == 1:
				died++
				w.lazy = false
			case died < 4: // a step is taken meanwhile
				died++
			case c.ends && died == 4:
				died++
				w.detain(source, false)
			}
		})[0]
		told := o.Status.UnavailableMilliseconds
		if o.Status.Phase != v1alpha1.MigrationSucceeded || c.ends == (told == nil) {
			t.Fatalf("what %s: it is %s, with %v: %s", what, o.Status.Phase, told, o.Status.Message)
		}
		if now := w.copied(); c.ends {
			until, _ := readySince(*now)
			if want := until.Sub(since).Milliseconds(); *told != want {
				t.Errorf("what %s: nobody served for %d ms, and it says %d", what, want, *told)
			}
		}
	}
}
