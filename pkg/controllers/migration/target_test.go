package migration_test

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
	"github.com/mainspring-rt/mainspring/pkg/placement"
)

func TestHeadroom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all, left, more string
		want            float64
	}{
		{"10", "10", "0", 1}, {"10", "5", "0", 0.5}, {"10", "5", "2", 0.3}, {"10", "1", "2", -0.1}, {"0", "0", "0", 0},
	} {
		got := migration.Headroom(placement.Room{Allocatable: amounts(c.all), Available: amounts(c.left)}, amounts(c.more))
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s of %s, and %s more: %f, want %f", c.left, c.all, c.more, got, c.want)
		}
	}
}

// The scarcer of CPU and memory counts, and what comes makes it less.
func TestHeadroomIsOfTheScarcer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
		list := func(cpu, memory int64) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)}
		}
		cpu, memory := draw("cpu", 100), draw("memory", 100)
		room := placement.Room{Allocatable: list(100, 100), Available: list(cpu, memory)}
		none, some := migration.Headroom(room, list(0, 0)), migration.Headroom(room, list(draw("more cpu", 100), draw("more memory", 100)))
		if want := float64(min(cpu, memory)) / 100; math.Abs(none-want) > 1e-9 || some > none {
			t.Fatalf("%f, want %f; with more %f", none, want, some)
		}
	})
}

// The measured usage of a node counts, not its requests. A node near the threshold comes last, and takes no pod whose move is optional.
func TestTargetsThatAreUnderPressure(t *testing.T) {
	t.Parallel()
	loaded := func(load map[string]float64, more ...func(*town)) func(*town) {
		return func(w *town) {
			w.load = load
			for _, f := range more {
				f(w)
			}
		}
	}
	for _, j := range []journey{
		{name: "another", town: loaded(map[string]float64{"b": 0.9}, nodes("c")), ask: ask("Restart"), phase: "Succeeded", places: "c"},
		{name: "another-for-an-ordinary-pod", town: loaded(map[string]float64{"b": 0.9}, nodes("c"), (*town).ungoverned), ask: ask("Restart"), phase: "Succeeded", places: "c"},
		{name: "less", town: loaded(map[string]float64{"b": 0.8, "c": 0.9}, nodes("c")), ask: ask("Restart"), phase: "Succeeded", places: "b"},
		{name: "by-hand", town: loaded(map[string]float64{"b": 0.9}), ask: ask("Restart"), phase: "Succeeded", places: "b"},
		{name: "optional", town: loaded(map[string]float64{"b": 0.9}), ask: func(w *town) {
			w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.Trigger = v1alpha1.TriggerCost })
		}, phase: "Refused", says: "would itself be under pressure", places: "a"},
	} {
		j.test(t)
	}
}

// The time that a migration has grows with what it carries, and with the time that the pod may take to end.
func TestAllowance(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		strategy v1alpha1.MigrationStrategy
		grace    time.Duration
		bytes    int64
		want     time.Duration
	}{
		{v1alpha1.StrategyRestart, 0, 8 * gib, 5 * time.Minute},
		{v1alpha1.StrategyRestart, time.Hour, 0, time.Hour + 5*time.Minute},
		{v1alpha1.StrategyCheckpoint, 0, 0, 9 * time.Minute},
		{v1alpha1.StrategyCheckpoint, 0, 4 * gib, 25 * time.Minute},
		{v1alpha1.StrategyCheckpoint, 0, 4000 * gib, 24 * time.Hour},
	} {
		if got := migration.Allowance(c.strategy, c.grace, c.bytes); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
