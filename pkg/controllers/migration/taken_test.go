package migration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// aged has the controller's cache show ReplicaSets as they were when they were kept.
func (w *town) aged() (keep func()) {
	var old *appsv1.ReplicaSet
	w.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if set, ok := o.(*appsv1.ReplicaSet); ok && old != nil {
				old.DeepCopyInto(set)
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		},
	})
	return func() { old = w.owner.DeepCopy() }
}

// orphans are pods of the town that have no owner.
func (w *town) orphans() (out []string) {
	w.Helper()
	for _, p := range w.pods() {
		if metav1.GetControllerOf(&p) == nil && p.DeletionTimestamp == nil {
			out = append(out, p.Name)
		}
	}
	return out
}

// collect plays the garbage collector for pods of a ReplicaSet that is gone: they go, or have no owner any longer.
func (w *town) collect(of *appsv1.ReplicaSet, orphan bool) {
	w.Helper()
	for _, p := range w.pods() {
		switch {
		case !metav1.IsControlledBy(&p, of):
		case orphan:
			p.OwnerReferences = nil
			w.must(w.api.Update(w.Context(), &p))
		default:
			w.finishDeletion(&p)
		}
	}
}

// handing has a surge come to where its copy is handed over, and do something then.
func handing(t *testing.T, do func(w *town)) (*town, *v1alpha1.PodMigration) {
	t.Helper()
	w := newTown(t, 1)
	w.gating = true
	w.rollout(1)
	keep := w.aged()
	w.asks(w.first(), by("Surge"))
	verifying, done := 0, false
	o := w.migrate(func(_ int, p *process) {
		if w.move().Status.Phase == v1alpha1.MigrationVerifying {
			verifying++
		}
		if verifying == 2 && !done { // the next step hands the copy over
			done = true
			keep()
			do(w)
			p.look()
		}
	})[0]
	return w, &o
}

// A ReplicaSet that is deleted just before the copy is handed to it, which the cache does not show yet, never adopts it. The migration
// does not succeed then, and the copy goes: else it would run on without an owner. A source that stays, as the user who deleted the
// ReplicaSet wanted, runs on as it was.
func TestACopyThatNoReplicaSetAdopts(t *testing.T) {
	t.Parallel()
	for what, orphan := range map[string]bool{"source goes": false, "source stays": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, o := handing(t, func(w *town) {
				former := w.owner.DeepCopy()
				w.must(w.api.Delete(w.Context(), w.owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
				w.late = func() {
					if c := w.copied(); c != nil && c.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "" {
						w.collect(former, orphan)
					}
				}
			})
			want, left := map[bool]string{true: "a", false: ""}[orphan], w.copied()
			if o.Status.Phase != v1alpha1.MigrationRolledBack || !strings.Contains(o.Status.Message, "nobody owns it") || w.places() != want || left != nil {
				t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
			}
			if orphans := w.orphans(); !orphan && len(orphans) > 0 || len(w.evicted) > 0 {
				t.Errorf("nobody owns %v; evicted %v", orphans, w.evicted)
			}
		})
	}
}

// A ReplicaSet may be slow to adopt the copy, while another controller or a user deletes the source: the migration waits. It also waits
// for a ReplicaSet that a Deployment creates in the place of a deleted one.
func TestACopyThatIsTakenLate(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(w *town){
		"slow": func(w *town) {},
		"another": func(w *town) {
			labels := w.owner.Spec.Selector.MatchLabels
			w.must(w.api.Delete(w.Context(), w.owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
			w.owner = w.replicaSetOf("rt-5d4f", 1, labels)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			waited := 0
			w, o := handing(t, func(w *town) {
				do(w)
				w.adopts = false
				w.lazy = true
				w.late = func() {
					c := w.copied()
					switch {
					case c == nil || c.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "":
					case waited > 5:
						w.adopts, w.lazy = true, false
					default:
						waited++
						for _, p := range w.pods() {
							if p.Annotations[mcv1.AnnotationReplaces] == "" {
								w.finishDeletion(&p)
							}
						}
					}
				}
			})
			if o.Status.Phase != v1alpha1.MigrationSucceeded || waited <= 5 || len(w.orphans()) > 0 || w.places() != "b" {
				t.Errorf("waited for %d turns; it is %s: %s; %s, nobody owns %v", waited, o.Status.Phase, o.Status.Message, w.everyone(), w.orphans())
			}
		})
	}
}

// A pod that no owner recreates may have the label by which a ReplicaSet finds its pods, as after its ReplicaSet was deleted without it.
// Its copy is handed to no ReplicaSet: the source goes only once the copy goes on with the state.
func TestACopyOfAPodThatWasAReplicaSets(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	bare(w)
	w.able()
	p := w.pods()[0]
	p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "5d4f"
	w.must(w.api.Update(t.Context(), &p))
	w.agents.cold = true
	w.asks(p.Name, by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = time.Minute })
	o := w.migrate(nil)[0]
	now := &corev1.Pod{}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(&p), now); err != nil || now.UID != p.UID || o.Status.Phase != v1alpha1.MigrationRolledBack || len(w.evicted) > 0 {
		t.Errorf("it is %s: %s; evicted %v; %s; %v", o.Status.Phase, o.Status.Message, w.evicted, w.everyone(), err)
	}
}
