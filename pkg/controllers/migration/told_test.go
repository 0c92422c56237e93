package migration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Each is told once, where something is done to it.
func TestWhoIsToldOfAMigrationByStrategy(t *testing.T) {
	t.Parallel()
	for strategy, c := range map[v1alpha1.MigrationStrategy]struct {
		town func(*town)
		want []string
	}{
		v1alpha1.StrategyRestart:    {nil, []string{"Migrating", "Migrated"}},
		v1alpha1.StrategySurge:      {func(w *town) { w.rollout(1) }, []string{"Migrated"}},
		v1alpha1.StrategyCheckpoint: {func(w *town) { w.rollout(1); w.able() }, []string{"Checkpointing", "Migrated"}},
	} {
		w := journey{town: c.town, ask: ask(strategy), phase: "Succeeded", places: "b"}.tell(t, 0, false)
		var got []string
		for _, told := range w.heard() {
			reason, _, _ := strings.Cut(told, " ")
			got = append(got, reason)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: told %v, want %v", strategy, w.heard(), c.want)
		}
	}
}

// Pods that no McKube governs have no cores of their own, and no message says that they have.
func TestWhatIsToldOfCores(t *testing.T) {
	t.Parallel()
	for _, strategy := range []v1alpha1.MigrationStrategy{v1alpha1.StrategyRestart, v1alpha1.StrategySurge, v1alpha1.StrategyEvict} {
		for _, governed := range []bool{true, false} {
			w := journey{town: func(w *town) {
				if strategy == v1alpha1.StrategySurge {
					w.rollout(1)
				}
				if !governed {
					w.ungoverned()
				}
			}, ask: ask(strategy), phase: "Succeeded", places: "b"}.tell(t, 0, false)
			w.lock.Lock()
			said := strings.Join(w.said, "; ")
			w.lock.Unlock()
			if strings.Contains(said, "with its cores") != governed || !governed && strings.Contains(said, "cores") || strings.Contains(said, "on node ,") || !strings.Contains(said, "runs on node") {
				t.Errorf("%s, governed: %t: %s", strategy, governed, said)
			}
		}
	}
}
