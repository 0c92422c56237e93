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
