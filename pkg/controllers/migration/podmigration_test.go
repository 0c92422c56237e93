package migration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// alike is up to which write all strategies go the same way; the deaths before it are those of Restart.
const alike = 6

// Of every two stories the controller dies in one. deathsPerStory is at how many of its writes, chosen at random, the controller dies in
// each story of a run of `make test`. There are some forty stories, of ten to thirty writes each.
const deathsPerStory = 1

// journey is a PodMigration, and what is to become of it and of the pods.
type journey struct {
	name   string
	town   func(w *town)
	ask    func(w *town)
	during func(w *town) func(int, *process)
	// phase that it ends in, what its message then says, and where pods run.
	phase, says, places string
	// state is what condition State is to be, where that is of interest.
	state metav1.ConditionStatus
	// deaths: the controller dies before each write from one on, in turn; to die after one is to die before the next.
	deaths bool
	since  int
	// evictions that it takes, where that is of interest, and how many writes at most.
	evictions, writes int
}

func (j journey) tell(t *testing.T, dieAt int, dieBefore bool) *town {
	w := newTown(t, 1)
	w.gating = true
	if j.town != nil {
		j.town(w)
	}
	j.ask(w)
	w.writes, w.dieAt, w.dieBefore = 0, dieAt, dieBefore
	var during func(int, *process)
	if j.during != nil {
		during = j.during(w)
	}
	o := w.migrate(during)[0]
	if string(o.Status.Phase) != j.phase || !strings.Contains(o.Status.Message, j.says) {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
		for _, a := range w.actions(t.Context()) {
			t.Logf("%s: %s", a.Name, a.Status.LastError)
		}
	}
	if strings.Count(o.Status.Message, "what the pod had in memory is lost") > 1 {
		t.Errorf("it says so twice: %s", o.Status.Message)
	}
	if got := w.places(); got != j.places {
		t.Errorf("it is %s, and leaves pods on %q: %s", o.Status.Phase, got, w.everyone())
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); j.state != "" && (c == nil || c.Status != j.state) {
		t.Errorf("it is %s: %s; condition State is %+v", o.Status.Phase, o.Status.Message, c)
	}
	undone := o.Status.Phase == v1alpha1.MigrationRolledBack || o.Status.Phase == v1alpha1.MigrationAborted
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); undone && c != nil && c.Reason == string(v1alpha1.StrategyCheckpoint) {
		t.Errorf("it is %s, and condition State is as of one whose state comes along: %+v", o.Status.Phase, c)
	}
	if n := len(w.evicted); j.evictions > 0 && n != j.evictions {
		t.Errorf("%d evictions, want %d", n, j.evictions)
	}
	if j.writes > 0 && dieAt == 0 && w.writes > j.writes {
		t.Errorf("%d writes, want %d", w.writes, j.writes)
	}
	if !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionMigrationDone) {
		t.Errorf("conditions: %+v", o.Status.Conditions)
	}
	return w
}

func (j journey) test(t *testing.T) {
	t.Helper()
	t.Run(j.name, func(t *testing.T) {
		t.Parallel()
		w := j.tell(t, 0, false)
		t.Logf("%d writes, %d evictions", w.writes, len(w.evicted))
		if !j.deaths || t.Failed() || !sampling.OneIn(t, 2) {
			return
		}
		for _, at := range sampling.Points(t, max(1, j.since), w.writes, deathsPerStory) {
			t.Run(fmt.Sprintf("dies-%d", at), func(t *testing.T) {
				t.Parallel()
				j.tell(t, at, true)
			})
		}
	})
}

// at does something before the first turn at which the migration has come to a phase.
func at(phase v1alpha1.MigrationPhase, do func(w *town)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		done := false
		return func(_ int, p *process) {
			if list := w.moves(); !done && len(list) > 0 && list[0].Status.Phase == phase {
				done = true
				do(w)
				p.look()
			}
		}
	}
}

// early does something once the eviction is about to be asked for, and has the loop see it before.
func early(do func(w *town)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		done := false
		return func(_ int, p *process) {
			if list := w.moves(); !done && len(list) > 0 && list[0].Status.Phase == v1alpha1.MigrationCuttingOver {
				done = true
				do(w)
				w.must(p.loop())
			}
		}
	}
}

func abort(w *town) {
	o := w.move()
	o.Spec.Abort = true
	w.must(w.api.Update(w.Context(), o))
}

func ask(strategy v1alpha1.MigrationStrategy) func(*town) {
	return func(w *town) { w.asks(w.first(), by(strategy)) }
}

// first is the name of the first pod.
func (w *town) first() string { return w.pods()[0].Name }

// bare has one pod that no owner recreates.
func bare(w *town) {
	w.must(w.api.Delete(w.Context(), w.owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	p := w.pods()[0]
	p.OwnerReferences = nil
	w.must(w.api.Update(w.Context(), &p))
}

// ungoverned pods are of no McKube; their claims are as before.
func (w *town) ungoverned() {
	w.former = w.mckube()
	w.must(w.api.Delete(w.Context(), w.former.DeepCopy()))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, j := range []journey{
		{name: "undisturbed", ask: ask("Restart"), phase: "Succeeded", says: "runs on node", places: "b", deaths: true, writes: 13},
		{name: "of-an-ordinary-pod", town: (*town).ungoverned, ask: ask("Restart"), phase: "Succeeded", says: "runs on node", places: "b", writes: 17},
		{name: "pinned", ask: func(w *town) {
			w.node("c", 2)
			w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("c") })
		}, phase: "Succeeded", places: "c", deaths: true, since: 8},
		{name: "evict", ask: ask("Evict"), phase: "Succeeded", says: "runs on node", places: "b"},
		{name: "no-room-after-all", town: func(w *town) { w.node("c", 2) }, ask: func(w *town) {
			w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("c") })
		},
			during: at("CuttingOver", func(w *town) { w.crowded = map[string]bool{"c": true} }), phase: "Succeeded", places: "b"},
		{name: "target-cordoned-late", town: func(w *town) { w.node("c", 2) }, ask: func(w *town) {
			w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("c") })
		},
			during: func(w *town) func(int, *process) {
				w.lazy = true
				return at("Restoring", func(w *town) { w.cordon("c"); w.lazy = false })(w)
			}, phase: "Succeeded", places: "b"},
		{name: "no-node-takes-it", town: func(w *town) { w.cordon("b") }, ask: ask("Restart"), phase: "Refused", says: "the node is cordoned", places: "a"},
		{name: "aborted", ask: ask("Restart"), during: early(abort), phase: "Aborted", says: "says abort", places: "a"},
		{name: "aborted-late", ask: ask("Restart"), during: at("Restoring", abort), phase: "Succeeded", places: "b"},
		{name: "deleted", ask: ask("Restart"), during: early(func(w *town) { w.must(w.api.Delete(w.Context(), w.move())) }), phase: "Aborted", says: "was deleted", places: "a"},
		{name: "pod-deleted", ask: ask("Restart"), during: early((*town).deletePod), phase: "Succeeded", says: "in place of", places: "b"},
	} {
		j.test(t)
	}
}

// A pod that was migrated may be migrated again, back to where it was.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	for _, strategy := range []v1alpha1.MigrationStrategy{v1alpha1.StrategyRestart, v1alpha1.StrategySurge} {
		w := newTown(t, 1)
		w.gating = true
		if strategy == v1alpha1.StrategySurge {
			w.rollout(1)
		}
		w.asks(w.first(), by(strategy))
		w.migrate(nil)
		there := w.places()
		p := w.pods()[0]
		w.asks(p.Name, by(strategy), func(o *v1alpha1.PodMigration) { o.Name, o.Spec.PodName = "back", p.Name })
		list := w.migrate(nil)
		if there != "b" || w.places() != "a" {
			t.Errorf("%s: it went to %s, and then to %s: %s; %s", strategy, there, w.places(), list[0].Status.Message, list[1].Status.Message)
		}
	}
}

// The status tells the whole story, and the pod in the place of the other is bound to the target.
func TestWhatAPodMigrationSays(t *testing.T) {
	t.Parallel()
	w := journey{ask: ask("Restart"), phase: "Succeeded", places: "b"}.tell(t, 0, false)
	o, pod := w.move(), w.pods()[0]
	if o.Status.Strategy != "Restart" || o.Status.Source.Node != w.name("a") || o.Status.Target.Node != w.name("b") || o.Status.Target.PodUID != pod.UID || o.Status.Owner.Name != "rt" {
		t.Errorf("%+v", o.Status)
	}
	if o.Status.UnavailableMilliseconds == nil || o.Status.StartTime == nil || o.Status.CompletionTime == nil || !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionMigrationVerified) {
		t.Errorf("%+v", o.Status)
	}
	if pod.Annotations[v1alpha1.AnnotationPinned] != w.name("b") || pod.Annotations[mcv1.AnnotationReplaces] != string(o.Status.Source.PodUID) {
		t.Errorf("the pod in its place: %+v %+v", pod.Spec.Affinity, pod.Annotations)
	}
	p := w.start()
	w.clock.Step(time.Hour)
	w.must(p.loop())
	w.must(p.loop())
	if list := w.moves(); len(list) > 0 {
		t.Errorf("it is kept for longer than its time: %+v", list[0].Status)
	}
}

func TestSurge(t *testing.T) {
	t.Parallel()
	two := func(w *town) { w.rollout(2) }
	for _, j := range []journey{
		{name: "undisturbed", town: func(w *town) { w.rollout(1) }, ask: ask("Surge"), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: alike, writes: 16},
		{name: "of-an-ordinary-pod", town: func(w *town) { w.rollout(1); w.ungoverned() }, ask: ask("Surge"), phase: "Succeeded", says: "in place of", places: "b", writes: 16},
		{name: "default", town: two, ask: ask(""), phase: "Succeeded", says: "in place of", places: "a b"},
		{name: "aborted", town: two, ask: ask("Surge"), during: at("Verifying", abort), phase: "Aborted", says: "stays on node", places: "a a"},
		{name: "scaled-to-zero", town: func(w *town) { w.rollout(1) }, ask: ask("Surge"), during: at("Verifying", func(w *town) { w.scale(0) }), phase: "RolledBack"},
		{name: "no-room-after-all", town: two, ask: func(w *town) {
			w.crowded = map[string]bool{"b": true}
			w.asks(w.first(), by("Surge"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 10 * time.Minute })
		}, phase: "RolledBack", says: "finds no node", places: "a a"},
		{name: "memory-of-others", town: made("mainspring.local/checkpoint/1:app"), ask: ask("Surge"), phase: "RolledBack", says: "may be what another pod had in memory", places: "a"},
		{name: "memory-of-others-by-id", town: made("sha256:3f"), ask: ask("Surge"), phase: "RolledBack", says: "may be what another pod had in memory", places: "a"},
		{name: "budget", town: func(w *town) { w.rollout(1); w.budget() }, ask: ask("Surge"), phase: "Succeeded", places: "b"},
		{name: "source-is-kept", town: func(w *town) { w.rollout(1); w.keeps = true }, ask: ask("Surge"), phase: "Succeeded", says: "in place of", places: "b", evictions: 1},
		{name: "cost-is-given-back", town: func(w *town) {
			w.rollout(1)
			w.deaf, w.cost = true, "7"
			p := w.pods()[0]
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, w.cost)
			w.must(w.api.Update(w.Context(), &p))
		}, ask: func(w *town) {
			w.asks(w.first(), by("Surge"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 15 * time.Second })
		}, phase: "RolledBack", places: "a"},
		{name: "target-dies", town: two, ask: ask("Surge"), during: func(w *town) func(int, *process) {
			w.unready = true
			return at("Verifying", func(w *town) { w.dies("b") })(w)
		}, phase: "RolledBack", says: "the node is not ready", places: "a a"},
		{name: "target-dies-with-a-copy-that-is-ready", town: two, ask: ask("Surge"), during: at("Verifying", func(w *town) { w.dies("b") }), phase: "RolledBack", says: "the node is not ready", places: "a a"},
		{name: "target-dies-and-any-will-do", town: func(w *town) { w.rollout(2); w.node("c", 2) }, ask: ask("Surge"), during: at("Verifying", func(w *town) { w.dies("b") }), phase: "Succeeded", says: "in place of", places: "a c"},
		{name: "quota", town: func(w *town) { w.rollout(2); w.quota = 1 }, ask: ask("Surge"), phase: "RolledBack", says: "exceeded quota: few", places: "a a"},
		{name: "never-ready", town: two, ask: ask("Surge"), during: func(w *town) func(int, *process) { w.unready = true; return func(int, *process) {} }, phase: "RolledBack", says: "does not run", places: "a a"},
	} {
		j.test(t)
	}
}

// made has the town's pod be one of a ReplicaSet whose template a user has changed to another image.
func made(image string) func(w *town) {
	return func(w *town) {
		w.rollout(1)
		w.owner.Spec.Template.Spec.Containers[0].Image = image
		w.must(w.api.Update(w.Context(), w.owner))
	}
}

// A pod that no owner recreates is stored before it goes, and runs once it is gone.
func TestABarePod(t *testing.T) {
	t.Parallel()
	for _, j := range []journey{
		{name: "undisturbed", town: bare, ask: ask("Restart"), phase: "Succeeded", places: "b", deaths: true, since: alike},
		{name: "not-told", town: bare, ask: ask(""), phase: "Refused", says: "say strategy Restart or Checkpoint", places: "a"},
		{name: "memory-of-others", town: func(w *town) {
			bare(w)
			p := w.pods()[0]
			p.Spec.Containers[0].Image = "mainspring.local/checkpoint/1:app"
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, "mckube.io/images", `{"app":{"image":"sha256:3f"}}`)
			w.must(w.api.Update(w.Context(), &p))
		}, ask: ask("Restart"), phase: "RolledBack", says: "may be what another pod had in memory", places: "a"},
		{name: "aborted", town: bare, ask: ask("Restart"), during: at("Restoring", abort), phase: "Aborted", places: "a"},
		{name: "budget", town: bare, ask: ask("Restart"), during: at("Restoring", (*town).budget), phase: "RolledBack", says: "may not be evicted yet", places: "a"},
	} {
		j.test(t)
	}
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	able := func(w *town) { w.rollout(1); w.able() }
	alone := func(w *town) { bare(w); w.able() }
	fails := func(stage v1alpha1.CheckpointStage) func(*town) {
		return func(w *town) { able(w); w.agents.fails = stage }
	}
	waits := func(reason string) func(*town) {
		return func(w *town) { able(w); w.late = func() { w.fail(reason) } }
	}
	for _, j := range []journey{
		{name: "undisturbed", town: able, ask: ask("Checkpoint"), phase: "Succeeded", places: "b", deaths: true, since: alike},
		{name: "bare", town: alone, ask: ask("Checkpoint"), phase: "Succeeded", places: "b"},
		{name: "cannot-be-made", town: waits("CreateContainerError"), ask: ask("Checkpoint"), phase: "RolledBack", says: "cannot be made of its state: CreateContainerError", places: "a"},
		{name: "cannot-be-started", town: waits("StartError"), ask: ask("Checkpoint"), phase: "RolledBack", says: "cannot be made of its state: StartError: criu failed", places: "a"},
		{name: "no-progress", town: func(w *town) { able(w); w.agents.cold = true }, ask: func(w *town) {
			w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 10 * time.Minute })
		}, phase: "RolledBack", says: "it took longer than 45s to go on with the state", places: "a"},
		{name: "liveness", town: probed(able, 10), ask: ask("Checkpoint"), phase: "Succeeded", places: "b"},
		{name: "liveness-soon", town: probed(func(w *town) { able(w); w.agents.cold = true }, 10), ask: ask("Checkpoint"), phase: "RolledBack", says: "its liveness probe ends it", places: "a"},
		{name: "liveness-at-once", town: demanding(probed(able, 1)), ask: ask("Checkpoint"), phase: "Refused", says: "its liveness probe may end it after 2s", places: "a"},
		{name: "sibling-not-ready", town: func(w *town) { w.rollout(2); w.able(); w.sicken(1) }, ask: ask("Checkpoint"), phase: "RolledBack", says: "which would go otherwise", places: "a a"},
		{name: "injected", town: demanding(func(w *town) {
			able(w)
			w.owner.Spec.Template.Spec.Containers[0].Name = "other"
			w.must(w.api.Update(w.Context(), w.owner))
		}), ask: ask("Checkpoint"), phase: "Refused", says: "container app is not of ReplicaSet rt-5d4f", places: "a"},
		{name: "nobody-was-there", town: able, ask: ask("Checkpoint"), during: at("Verifying", func(w *town) { w.clock.Step(10 * time.Minute) }), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "nobody-was-there-early", town: able, ask: ask("Checkpoint"), during: at("Transferring", func(w *town) { w.clock.Step(10 * time.Minute) }), phase: "RolledBack", places: "a"},
		{name: "liveness-while-verifying", town: probed(able, 10), ask: ask("Checkpoint"), during: at("Verifying", func(w *town) { w.clock.Step(30 * time.Second) }), phase: "Succeeded", places: "b"},
		{name: "node-checkpoint-deleted", town: able, ask: ask("Checkpoint"), during: at("Verifying", func(w *town) {
			w.must(w.api.DeleteAllOf(w.Context(), &v1alpha1.NodeCheckpoint{}, client.MatchingLabels{v1alpha1.LabelMigrationAction: w.actions(w.Context())[0].Name}))
		}), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "sibling-sickens", town: func(w *town) { w.rollout(2); w.able() }, ask: ask("Checkpoint"), during: at("Verifying", func(w *town) { w.agents.most++; w.sicken(2) }),
			phase: "Succeeded", says: "in place of", places: "b b", evictions: 1},
		{name: "source-goes-early", town: able, ask: ask("Checkpoint"), during: at("Transferring", deleted), phase: "Failed", says: "nobody here has evicted it", places: "b"},
		{name: "source-goes-at-restore", town: able, ask: ask("Checkpoint"), during: at("Restoring", goes), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "source-goes", town: able, ask: ask("Checkpoint"), during: at("Verifying", goes), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 16},
		{name: "bare-source-goes", town: alone, ask: ask("Checkpoint"), during: at("Verifying", goes), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 16},
		{name: "bare-source-goes-at-release", town: alone, ask: ask("Checkpoint"), during: at("CuttingOver", goes), phase: "Succeeded", places: "b"},
		{name: "source-goes-at-release", town: able, ask: ask("Checkpoint"), during: at("CuttingOver", goes), phase: "Succeeded", places: "b"},
		{name: "source-goes-aborted", town: able, ask: ask("Checkpoint"), during: at("Verifying", func(w *town) { goes(w); abort(w) }), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "checkpoint-fails", town: fails("Checkpoint"), ask: ask("Checkpoint"), phase: "RolledBack", says: "it went wrong", places: "a"},
		{name: "transfer-fails", town: fails("Transfer"), ask: ask("Checkpoint"), phase: "RolledBack", says: "it went wrong", places: "a"},
		{name: "begins-anew", town: func(w *town) { able(w); w.agents.cold = true }, ask: ask("Checkpoint"), phase: "RolledBack", says: "does not say yet that container app was restored", places: "a"},
		{name: "target-cordoned", town: able, ask: ask("Checkpoint"), during: at("Transferring", func(w *town) { w.cordon("b") }), phase: "RolledBack", says: "takes no pod any longer: the node is cordoned", places: "a"},
		{name: "target-dies", town: able, ask: ask("Checkpoint"), during: at("Transferring", func(w *town) { w.vanishes("b") }), phase: "RolledBack", says: "the node is gone", places: "a"},
		{name: "target-dies-restoring", town: able, ask: ask("Checkpoint"), during: unready(at("Verifying", func(w *town) { w.vanishes("b") })), phase: "RolledBack", says: "", places: "a"},
		{name: "aborted", town: able, ask: ask("Checkpoint"), during: at("Transferring", abort), phase: "Aborted", places: "a"},
		{name: "aborted-before-it-serves", town: able, ask: ask("Checkpoint"), during: unready(at("Verifying", abort)), phase: "Aborted", places: "a", deaths: true, since: 13},
		{name: "aborted-late", town: able, ask: ask("Checkpoint"), during: at("Verifying", abort), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 15},
		{name: "silent-agents", town: func(w *town) { able(w); w.agents.stuck = true }, ask: ask("Checkpoint"),
			during: at("RollingBack", func(w *town) { w.agents.stuck = false }), phase: "RolledBack", says: "It took longer", places: "a"},
		{name: "stands-still", town: func(w *town) { able(w); w.agents.stuck = true }, ask: patiently, during: slowly(func(w *town, phase v1alpha1.MigrationPhase) {
			w.agents.stuck = phase != v1alpha1.MigrationRollingBack
		}), phase: "RolledBack", says: "nothing has advanced for 2m30s", places: "a"},
		{name: "source-dies", town: func(w *town) { able(w); w.agents.stuck = true }, ask: patiently, during: slowly(func(w *town, phase v1alpha1.MigrationPhase) {
			if phase == v1alpha1.MigrationRollingBack {
				w.vanishes("a")
			}
		}), phase: "Failed", says: "nothing has advanced for 2m30s", places: "b"},
		{name: "is-at-it", town: func(w *town) { able(w); w.agents.stuck = true }, ask: patiently, during: slowly(func(w *town, _ v1alpha1.MigrationPhase) {
			w.agents.stuck = w.clock.Since(w.move().CreationTimestamp.Time) < 10*time.Minute
			w.beat()
		}), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "ordinary-threads", town: func(w *town) { able(w); w.agents.ordinary = true }, ask: ask("Checkpoint"), phase: "RolledBack", says: "has 1 threads of a real-time policy, and its source 2", places: "a"},
		{name: "other-budgets", town: func(w *town) { able(w); w.agents.lax = true }, ask: ask("Checkpoint"), phase: "RolledBack", says: "has a budget of 0 of 7 us", places: "a"},
		{name: "incapable", town: func(w *town) { w.rollout(1) }, ask: ask("Checkpoint"), phase: "Refused", says: "say strategy Restart, and it begins anew", places: "a"},
		{name: "incapable-wish", town: func(w *town) {
			w.rollout(1)
			wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{})(w)
		}, ask: ask(""), phase: "SucceededWithoutState", says: "in place of", places: "b"},
		{name: "incapable-bare", town: bare, ask: ask("Checkpoint"), phase: "Refused", says: "its state cannot come along", places: "a"},
		{name: "state-required", town: func(w *town) {
			w.rollout(1)
			w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{RequireState: true}}
		}, ask: ask("Checkpoint"), phase: "Refused", says: "its state cannot come along", places: "a"},
	} {
		j.test(t)
	}
}

// patiently asks for a checkpoint that has half an hour.
func patiently(w *town) {
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 30 * time.Minute })
}

// slowly has half a minute pass before each turn from the checkpoint on until the target has the state, and something happen.
func slowly(do func(w *town, phase v1alpha1.MigrationPhase)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		return func(int, *process) {
			switch phase := w.move().Status.Phase; phase {
			case v1alpha1.MigrationCheckpointing, v1alpha1.MigrationRollingBack:
				w.clock.Step(30 * time.Second)
				do(w, phase)
			}
		}
	}
}

// vanishes has a node be gone from the API, and with it the pods that were on it.
func (w *town) vanishes(node string) {
	w.Helper()
	w.must(client.IgnoreNotFound(w.api.Delete(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name(node)}})))
	for _, p := range w.pods() {
		if p.Spec.NodeName == w.name(node) {
			w.finishDeletion(&p)
		}
	}
}

// beat has the source's agent say that it is still at it.
func (w *town) beat() {
	w.Helper()
	list := &v1alpha1.NodeCheckpointList{}
	w.must(w.api.List(w.Context(), list))
	for i := range list.Items {
		if nc := &list.Items[i]; nc.Spec.PodNamespace == w.namespace && nc.Spec.Stage == v1alpha1.StageCheckpoint && w.agents.stuck {
			nc.Status.Source = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointWorking, ProgressTime: ptr.To(metav1.NewMicroTime(w.clock.Now()))}
			w.must(w.api.Status().Update(w.Context(), nc))
		}
	}
}

// unready has the copy not become ready meanwhile.
func unready(during func(*town) func(int, *process)) func(*town) func(int, *process) {
	return func(w *town) func(int, *process) {
		w.unready = true
		return during(w)
	}
}

// goes deletes the source, as a user may, if it is there. Its owner creates another at once, which starts anew; in the end only the copy
// is left.
func goes(w *town) {
	deleted(w)
	of := string(w.move().Status.Source.PodUID)
	w.Cleanup(func() {
		list := &corev1.PodList{}
		w.must(w.api.List(context.WithoutCancel(w.Context()), list, client.InNamespace(w.namespace)))
		for _, p := range list.Items {
			if owned := metav1.GetControllerOf(&p) != nil; p.Annotations[mcv1.AnnotationReplaces] != of || owned != w.adopts {
				w.Errorf("pod %s is left, and has not the state: owned %t, %v", p.Name, owned, p.Annotations)
			}
		}
	})
}

func deleted(w *town) {
	w.agents.most++
	for _, p := range w.pods() {
		if p.UID == w.move().Status.Source.PodUID {
			w.finishDeletion(&p)
		}
	}
}

// elsewhereOnly has the controller move pods of another namespace only.
func elsewhereOnly(w *town) { w.namespaces = sets.New("elsewhere") }

func TestRefusals(t *testing.T) {
	t.Parallel()
	change := func(f func(o *v1alpha1.PodMigration)) func(*town) {
		return func(w *town) { w.asks("rt-1", f) }
	}
	for reason, j := range map[string]journey{
		"PodNotFound":       {ask: func(w *town) { w.asks("nobody") }, says: "there is no pod", places: "a"},
		"PodReplaced":       {ask: change(func(o *v1alpha1.PodMigration) { o.Spec.PodUID = "another" }), says: "another was meant", places: "a"},
		"McKubeNever":       {town: (*town).forbid, ask: ask(""), says: "migration.policy Never", places: "a"},
		"NamespaceExcluded": {town: elsewhereOnly, ask: ask("Evict"), says: "--migration-namespaces does not name it", places: "a"},
		"SurgeImpossible":   {ask: ask("Surge"), says: "has no label pod-template-hash", places: "a"},
		"TargetRefused":     {ask: change(func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = "nowhere" }), says: "node nowhere has no real-time cores", places: "a"},
		"NoTarget":          {town: func(w *town) { w.cordon("b") }, ask: ask(""), says: "no node takes the pod", places: "a"},
		"OwnerWantsNone":    {town: func(w *town) { w.must(w.api.Delete(w.Context(), w.owner)) }, ask: ask(""), says: "ReplicaSet rt, which made it, is gone", places: "a"},
		"PolicyDenied":      {town: func(w *town) { w.judge.denies = "not on Sundays" }, ask: ask(""), says: "not on Sundays", places: "a"},
		"NoOwner":           {town: func(w *town) { bare(w); w.named() }, ask: ask(""), says: "no controller owns the pod", places: "a"},
		"StateImpossible":   {town: func(w *town) { bare(w); w.able(); w.named() }, ask: ask("Checkpoint"), says: "governs the pod by its name", places: "a"},
		"GovernedByName":    {town: func(w *town) { bare(w); w.named() }, ask: ask("Restart"), says: "governs the pod by its name", places: "a"},
		"ImageUnknown": {town: func(w *town) {
			bare(w)
			p := w.pods()[0]
			p.Spec.Containers[0].Image = "mainspring.local/checkpoint/1:app"
			w.must(w.api.Update(w.Context(), &p))
		}, ask: ask("Restart"), says: "does not say of which image it was made", places: "a"},
		"DoNotDisrupt": {town: func(w *town) {
			p := w.pods()[0]
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, "karpenter.sh/do-not-disrupt", "true")
			w.must(w.api.Update(w.Context(), &p))
		}, ask: change(func(o *v1alpha1.PodMigration) { o.Spec.Trigger = v1alpha1.TriggerCost }), says: "do-not-disrupt", places: "a"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			j.phase = "Refused"
			w := j.tell(t, 0, false)
			c := meta.FindStatusCondition(w.move().Status.Conditions, v1alpha1.ConditionMigrationAdmitted)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || len(w.evicted) > 0 || len(w.actions(t.Context())) > 0 {
				t.Errorf("condition %+v, evicted %v", c, w.evicted)
			}
			if source := w.move().Status.Source; (source != nil && source.Node == w.name("a")) == (reason == "PodNotFound" || reason == "PodReplaced") {
				t.Errorf("the source is %+v", source)
			}
		})
	}
}

func TestADryRunDoesNothing(t *testing.T) {
	t.Parallel()
	dry := func(w *town) { w.asks("rt-1", func(o *v1alpha1.PodMigration) { o.Spec.DryRun = true }) }
	w := journey{ask: dry, phase: "DryRun", says: "goes from node", places: "a"}.tell(t, 0, false)
	if o := w.move(); o.Status.Target.Node != w.name("b") || o.Status.Strategy != "Restart" || len(o.Finalizers) > 0 || len(w.actions(t.Context())) > 0 || len(w.evicted) > 0 {
		t.Errorf("%d writes; %+v", w.writes, o.Status)
	}
}

// Migrations beyond a limit wait, and go on when those before them are over.
func TestLimitsAreWaitedFor(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Limits: &v1alpha1.MigrationLimits{PerNamespace: ptr.To[int32](1)}}}
	w.asks("rt-1")
	w.asks("rt-2")
	waited, most := false, 0
	list := w.migrate(func(int, *process) {
		under := 0
		for _, o := range w.moves() {
			waited = waited || strings.Contains(o.Status.Message, "limit perNamespace is reached")
			if o.Status.Phase != "" && o.Status.Phase != "Pending" && !o.Status.Phase.Over() {
				under++
			}
		}
		most = max(most, under)
	})
	if !waited || most != 1 || w.places() != "b b" {
		t.Errorf("waited: %t, %d at once; %s; %s, %s", waited, most, w.everyone(), list[0].Status.Message, list[1].Status.Message)
	}
}

// What the ladder asks of the queue has a PodMigration, too, by which it can be followed and aborted.
func TestTheRecordOfAnAction(t *testing.T) {
	t.Parallel()
	for _, aborted := range []bool{false, true} {
		w := newTown(t, 1)
		p := w.start()
		for range 3 {
			w.must(p.turn())
		}
		p, _ = w.submit(p, w.request("rt-1"))
		w.must(p.turn())
		if aborted {
			abort(w)
			w.must(p.loop())
		}
		o := w.migrate(nil)[0]
		want := map[bool]string{false: "Succeeded b", true: "Aborted a"}[aborted]
		if got := string(o.Status.Phase) + " " + w.places(); got != want || o.Spec.Trigger != v1alpha1.TriggerRTPressure {
			t.Errorf("%s; %+v", got, o)
		}
	}
}

func TestTwoMigrationsOfOnePod(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.asks("rt-1", by("Restart"))
	w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Name = "second" })
	var ends []string
	for _, o := range w.migrate(nil) {
		ends = append(ends, string(o.Status.Phase))
	}
	slices.Sort(ends)
	if !slices.Equal(ends, []string{"Refused", "Succeeded"}) || w.places() != "b" || len(w.evicted) != 1 {
		t.Errorf("%v; %s", ends, w.everyone())
	}
}
