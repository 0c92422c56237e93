package migration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// stubborn runs all actors, and retries what has failed, until the migration is over, and returns for how long its source was stopped.
func (w *town) stubborn() time.Duration {
	w.Helper()
	p := w.start()
	var since, until time.Time
	var source types.UID
	for range 400 {
		if err := p.turn(); err != nil {
			p.live()
			p.clock.Step(time.Second)
		}
		_ = p.loop() // again, too
		o := w.move()
		if o.Status.Source != nil {
			source = o.Status.Source.PodUID
		}
		if w.agents.stopped[source] {
			until = w.clock.Now()
			if since.IsZero() {
				since = until
			}
		}
		if o.Status.Phase.Over() {
			return until.Sub(since)
		}
	}
	w.Fatalf("it does not end: %s; %+v", w.everyone(), w.move().Status)
	return 0
}

// A webhook for pods stops answering while the source is stopped: the source runs on, and the status repeats the API server's words.
func TestAWebhookThatDoesNotAnswerWhileTheSourceStandsStill(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"StatefulSet", "Job", "none"} {
		w := newTown(t, 1)
		w.gating = true
		stored := func() bool { return true }
		if kind == "none" {
			bare(w)
			w.able()
		} else {
			t.Cleanup(w.house(kind).expectNothingLeft)
			stored = w.storesReplacement
		}
		w.admission = func(p *corev1.Pod) error {
			if restored(p) && stored() {
				return apierrors.NewInternalError(errors.New("failed calling webhook \"validate.kyverno.svc-fail\": context deadline exceeded"))
			}
			return nil
		}
		w.asks(w.first(), by("Checkpoint"))
		stood, o := w.stubborn(), w.move()
		if stood == 0 || stood > 20*time.Second || len(w.evicted) > 0 || o.Status.Phase != v1alpha1.MigrationRolledBack || !strings.Contains(o.Status.Message, "failed calling webhook") || w.places() != "a" {
			t.Errorf("%s: stood still for %s, evicted %v; it is %s: %s", kind, stood, w.evicted, o.Status.Phase, o.Status.Message)
		}
	}
}

// A policy or a webhook that refuses the PodTemplate of the replacement is found before the source is stopped. If it refuses the
// PodTemplate only later, the source runs on at once.
func TestAPodTemplateThatIsRefused(t *testing.T) {
	t.Parallel()
	for what, refusal := range map[string]error{
		"gatekeeper": apierrors.NewForbidden(corev1.Resource("podtemplates"), "x", errors.New("no label team")),
		"kyverno":    apierrors.NewBadRequest("admission webhook \"validate.kyverno.svc-fail\" denied the request: no label team"),
	} {
		for _, late := range []bool{false, true} {
			w := newTown(t, 1)
			w.gating = true
			t.Cleanup(w.house("StatefulSet").expectNothingLeft)
			w.client = interceptor.NewClient(w.client, interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, ok := o.(*corev1.PodTemplate); ok && !late {
						return refusal
					}
					return api.Create(ctx, o, opts...)
				},
				Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if _, ok := o.(*corev1.PodTemplate); ok {
						return refusal
					}
					return api.Patch(ctx, o, patch, opts...)
				},
			})
			w.asks(w.first(), by("Checkpoint"))
			stood, o := w.stubborn(), w.move()
			if (stood > 0) != late || stood > 10*time.Second || o.Status.Phase != v1alpha1.MigrationRolledBack || !strings.Contains(o.Status.Message, "cannot be stored") || !strings.Contains(o.Status.Message, "no label team") {
				t.Errorf("%s, late %t: stood still for %s; it is %s: %s", what, late, stood, o.Status.Phase, o.Status.Message)
			}
		}
	}
}
