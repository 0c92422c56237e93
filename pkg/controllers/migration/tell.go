package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	case p == rules.RolledBack && progress[progressForfeited] != "": // all is undone, and the pod is gone with what it had in memory
		return v1alpha1.MigrationFailed
	case p == rules.RolledBack && unwanted, p == rules.Withdrawn:
		return v1alpha1.MigrationAborted
	case p == rules.RolledBack:
		return v1alpha1.MigrationRolledBack
	case p == rules.Refused, p == rules.Expired:
		return v1alpha1.MigrationRefused
	}
	return v1alpha1.MigrationFailed
}

// vanished ends a migration whose action was deleted by force. Leftovers handles its state, and nothing is reported of that any longer.
func (r *Reconciler) vanished(ctx context.Context, o *v1alpha1.PodMigration, message string) error {
	const reason = "ActionGone"
	if err := r.unrestrain(ctx, o, o.Status.Action); err != nil {
		return err
	}
	return r.end(ctx, o, v1alpha1.MigrationFailed, reason, message, func(s *v1alpha1.PodMigrationStatus) {
		if touched(o) && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionMigrationState) {
			setCondition(s, v1alpha1.ConditionMigrationState, metav1.ConditionUnknown, reason, message, r.Clock.Now())
		}
	})
}
