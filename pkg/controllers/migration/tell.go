package migration

import (
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// outcome is what became of a migration, in people's words.
func outcome(p rules.Phase, unwanted bool, progress map[string]string) v1alpha1.MigrationPhase {
	switch {
	case p == rules.Succeeded && progress[progressStateless] != "":
		return v1alpha1.MigrationSucceededWithoutState
	case p == rules.Succeeded:
		return v1alpha1.MigrationSucceeded
	case p == rules.RolledBack && unwanted, p == rules.Withdrawn:
		return v1alpha1.MigrationAborted
	case p == rules.RolledBack:
		return v1alpha1.MigrationRolledBack
	case p == rules.Refused, p == rules.Expired:
		return v1alpha1.MigrationRefused
	}
	return v1alpha1.MigrationFailed
}
