package migration

import (
	"cmp"
	"fmt"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// longest is how long a migration waits for its turn where it does not say.
const longest = time.Hour

// mayWait is how long a migration waits for its turn.
func mayWait(o *v1alpha1.PodMigration) time.Duration {
	if t := o.Spec.WaitTimeout; t != nil {
		return t.Duration
	}
	return longest
}

// left is for how long a migration may still wait for its turn. A migration of an action that existed first waits as long as the action
// does.
func (r *Reconciler) left(o *v1alpha1.PodMigration) time.Duration {
	if o.Labels[v1alpha1.LabelMigrationAction] != "" {
		return mayWait(o)
	}
	since := o.CreationTimestamp.Time
	if at := o.Status.PhaseTime; at != nil && at.After(since) { // it waits once more, for another target
		since = at.Time
	}
	return mayWait(o) - r.Clock.Now().Sub(since)
}

// waited says for what it has waited too long.
func (r *Reconciler) waited(o *v1alpha1.PodMigration, what string) string {
	return fmt.Sprintf("it has waited for its turn for %s: %s", mayWait(o), cmp.Or(what, "the queue has not come to it"))
}
