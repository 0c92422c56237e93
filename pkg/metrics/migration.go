package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Values of the label strategy of mainspring_migrations_total.
const (
	StrategyCheckpoint = "checkpoint"
	StrategySurge      = "surge"
	// StrategyRestart is for pods that are evicted and made again elsewhere.
	StrategyRestart = "restart"
	StrategyEvict   = "evict"
	// StrategyNone is for migrations that were refused, or that nobody wanted before anything was decided.
	StrategyNone = "none"
)

var (
	// Migrations counts migrations of pods that are over.
	Migrations = counter("migrations_total", "Migrations of pods to other nodes that are over, by the strategy that was used and by what became of them.", "strategy", "result")
	// MigrationDowntime is how long pods that were migrated did not run.
	MigrationDowntime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "migration_downtime_seconds", Help: "Time for which neither a migrated pod nor the one in its place served.",
		Buckets: []float64{0, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300},
	})
	// MigrationPhases is how long migrations were in each phase.
	MigrationPhases = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "migration_phase_seconds", Help: "Time that migrations of pods spent in a phase.",
		Buckets: []float64{0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	}, []string{"phase"})
)

// zeroMigrations makes the series of migrations exist.
func zeroMigrations() {
	for _, strategy := range []string{StrategyCheckpoint, StrategySurge, StrategyRestart, StrategyEvict} {
		for _, result := range []v1alpha1.MigrationPhase{
			v1alpha1.MigrationSucceeded, v1alpha1.MigrationSucceededWithoutState, v1alpha1.MigrationFailed, v1alpha1.MigrationRolledBack, v1alpha1.MigrationAborted,
		} {
			Migrations.WithLabelValues(strategy, string(result))
		}
	}
	for _, result := range []v1alpha1.MigrationPhase{v1alpha1.MigrationRefused, v1alpha1.MigrationAborted} {
		Migrations.WithLabelValues(StrategyNone, string(result))
	}
	for _, phase := range []v1alpha1.MigrationPhase{
		v1alpha1.MigrationPending, v1alpha1.MigrationReserving, v1alpha1.MigrationCheckpointing, v1alpha1.MigrationTransferring, v1alpha1.MigrationRestoring,
		v1alpha1.MigrationVerifying, v1alpha1.MigrationCuttingOver, v1alpha1.MigrationRollingBack,
	} {
		MigrationPhases.WithLabelValues(string(phase))
	}
}
