package webhooks_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// A pod whose state is on its way is not evicted, however late it is: the migration ends by its own time.
func TestAPodThatStandsStillIsNotEvicted(t *testing.T) {
	for phase, stays := range map[v1alpha1.MigrationPhase]bool{
		v1alpha1.MigrationPending: false, v1alpha1.MigrationReserving: false, v1alpha1.MigrationCheckpointing: true, v1alpha1.MigrationTransferring: true,
		v1alpha1.MigrationRestoring: true, v1alpha1.MigrationVerifying: true, v1alpha1.MigrationCuttingOver: true, v1alpha1.MigrationRollingBack: true,
	} {
		g := newGate(t, migrationOf("by-hand", "u1", phase, func(o *v1alpha1.PodMigration) { o.Status.Strategy = v1alpha1.StrategyCheckpoint }))
		g.clock.SetTime(evening.Add(time.Hour))
		if r := g.evict(t); r.Allowed == stays {
			t.Errorf("%s: %+v", phase, r)
		} else if stays && !strings.Contains(r.Result.Message, "its state is on its way") {
			t.Errorf("%s: %s", phase, r.Result.Message)
		}
	}
}

// A rollback may take longer than it has: its PodMigration is over, or even gone, and the pod stands still. Until it runs on it is not evicted,
// however late it is.
func TestAPodThatStandsStillAfterItsMigrationIsNotEvicted(t *testing.T) {
	checkpoint := func(stage v1alpha1.CheckpointStage, source *v1alpha1.CheckpointSide) *v1alpha1.NodeCheckpoint {
		return &v1alpha1.NodeCheckpoint{
			ObjectMeta: metav1.ObjectMeta{Name: "nc"}, Spec: v1alpha1.NodeCheckpointSpec{PodNamespace: "default", PodName: "app", PodUID: "u1", Stage: stage, Expires: metav1.NewTime(evening.Add(time.Hour))},
			Status: v1alpha1.NodeCheckpointStatus{Source: source},
		}
	}
	side := func(s v1alpha1.CheckpointState) *v1alpha1.CheckpointSide { return &v1alpha1.CheckpointSide{State: s} }
	hung := func(o *v1alpha1.PodMigration) { o.Status.Strategy = v1alpha1.StrategyCheckpoint }
	for what, c := range map[string]struct {
		nc     *v1alpha1.NodeCheckpoint
		passes bool
	}{
		"its copy does not go":            {checkpoint(v1alpha1.StageRestore, side(v1alpha1.CheckpointCheckpointed)), false},
		"its agent has not let it go on":  {checkpoint(v1alpha1.StageDiscard, side(v1alpha1.CheckpointCheckpointed)), false},
		"its agent has not said anything": {checkpoint(v1alpha1.StageDiscard, nil), false},
		"it runs on":                      {checkpoint(v1alpha1.StageDiscard, side(v1alpha1.CheckpointDiscarded)), true},
		"it could not be stopped":         {checkpoint(v1alpha1.StageRestore, side(v1alpha1.CheckpointFailed)), true},
		"another has its state":           {checkpoint(v1alpha1.StageRelease, side(v1alpha1.CheckpointCheckpointed)), true},
	} {
		for _, migration := range []*v1alpha1.PodMigration{
			migrationOf("eviction-u1", "u1", v1alpha1.MigrationFailed, hung), migrationOf("eviction-u1", "u1", v1alpha1.MigrationPending),
			migrationOf("by-hand", "u1", v1alpha1.MigrationFailed, hung),
		} {
			g := newGate(t, migration, c.nc)
			g.clock.SetTime(evening.Add(time.Hour))
			switch r := g.evict(t); {
			case !c.passes:
				expectLater(t, r, "pod default/app stands still for NodeCheckpoint nc")
				if n := len(g.migrations(t)); n != 1 {
					t.Errorf("%s: %d migrations", what, n)
				}
			case migration.Name == "by-hand":
				expectLater(t, r, "eviction-u1")
			default:
				expectPasses(t, r, "PodMigration default/eviction-u1")
			}
		}
	}
}

// An agent that is gone for good holds up no drain for ever: once the pod should have gone on, and a deadline later has
// not. While no controller has decided that it goes on, another may have its state.
func TestAPodThatIsLeftStandingStill(t *testing.T) {
	at := evening.Add(time.Minute)
	for stage, passes := range map[v1alpha1.CheckpointStage]bool{v1alpha1.StageDiscard: true, v1alpha1.StageRestore: false, v1alpha1.StageCheckpoint: false} {
		g := newGate(t, migrationOf("eviction-u1", "u1", v1alpha1.MigrationFailed), &v1alpha1.NodeCheckpoint{
			ObjectMeta: metav1.ObjectMeta{Name: "nc"},
			Spec:       v1alpha1.NodeCheckpointSpec{PodNamespace: "default", PodName: "app", PodUID: "u1", SourceNode: "edge-1", Stage: stage, Expires: metav1.NewTime(at)},
		})
		g.clock.SetTime(at.Add(10*time.Minute - time.Second))
		expectLater(t, g.evict(t), "pod default/app stands still for NodeCheckpoint nc")
		g.clock.SetTime(at.Add(10 * time.Minute))
		if r := g.evict(t); passes {
			expectPasses(t, r, "the agent of node edge-1 has not let it go on within 10m0s: what it has in memory is lost")
		} else {
			expectLater(t, r, "pod default/app stands still for NodeCheckpoint nc")
		}
	}
}

// So it is with pods that an eviction by itself would not have migrate: one that no controller makes again and a
// PodMigration moves with its state, one that no McKube governs and a MigrationPolicy has moved so, one that has ended
// meanwhile. Once they do not stand still they go as before.
func TestAPodThatStandsStillAndWouldNotMigrate(t *testing.T) {
	way := func(o *v1alpha1.PodMigration) { o.Status.Strategy = v1alpha1.StrategyCheckpoint }
	for what, change := range map[string]func(*state.PodView){
		"bare":      func(p *state.PodView) { p.Owned = false },
		"no McKube": func(p *state.PodView) { p.Governed = nil },
		"ended":     func(p *state.PodView) { p.Phase = corev1.PodFailed },
		"its McKube says Never": func(p *state.PodView) {
			p.Governed[0].McKube.Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		},
		"neither": func(p *state.PodView) { p.Owned, p.Governed = false, nil },
	} {
		for _, phase := range []v1alpha1.MigrationPhase{v1alpha1.MigrationTransferring, v1alpha1.MigrationFailed} {
			nc := &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: "nc"}, Spec: v1alpha1.NodeCheckpointSpec{PodUID: "u1", Stage: v1alpha1.StageTransfer}}
			g := newGate(t, migrationOf("by-hand", "u1", phase, way), nc)
			change(g.pod)
			if r := g.evict(t); r.Allowed || r.Result.Code != http.StatusTooManyRequests || !strings.Contains(r.Result.Message, "come again") {
				t.Errorf("%s, %s: %+v", what, phase, r)
			}
			for _, o := range []client.Object{nc, migrationOf("by-hand", "u1", phase, way)} {
				if err := g.api.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			if expectPasses(t, g.evict(t), ""); len(g.migrations(t)) > 0 {
				t.Errorf("%s: it is migrated", what)
			}
		}
		g := newGate(t)
		change(g.pod)
		g.Client = interceptor.NewClient(g.api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errLists
		}})
		expectPasses(t, g.evict(t), "it is not known whether the pod stands still")
	}
}

// What cannot be read keeps no eviction back.
func TestNodeCheckpointsThatCannotBeRead(t *testing.T) {
	g := newGate(t)
	g.Client = interceptor.NewClient(g.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.NodeCheckpointList); ok {
				return errLists
			}
			return c.List(ctx, list, o...)
		},
	})
	expectPasses(t, g.evict(t), "it is not known whether the pod stands still")
}
