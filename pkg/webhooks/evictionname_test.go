package webhooks_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A dry run of the eviction's name does not put it off. Another migration that a user has given that name puts it off
// until its own deadline: one that is promised anew with every request never comes.
func TestANameThatIsTaken(t *testing.T) {
	dry := func(o *v1alpha1.PodMigration) { o.Spec.DryRun = true }
	for what, taken := range map[string]*v1alpha1.PodMigration{
		"over": migrationOf("eviction-u1", "u1", v1alpha1.MigrationDryRun, dry), "not over": migrationOf("eviction-u1", "u1", v1alpha1.MigrationPending, dry),
	} {
		g := newGate(t, taken)
		expectPasses(t, g.evict(t), "PodMigration default/eviction-u1 has the name of its migration, and is a dry run")
		if n := len(g.migrations(t)); n != 1 {
			t.Errorf("%s: %d PodMigrations", what, n)
		}
	}
	g := newGate(t, migrationOf("eviction-u1", "u2", v1alpha1.MigrationPending))
	for _, minutes := range []time.Duration{0, 9} {
		g.clock.SetTime(evening.Add(minutes * time.Minute))
		expectLater(t, g.evict(t), "from 2026-11-21T20:10:00Z on it may be evicted all the same")
	}
	g.clock.SetTime(evening.Add(10 * time.Minute))
	expectPasses(t, g.evict(t), "has not ended within 10m0s")
}

// One that the list does not show yet is waited for until its own deadline, not until one that moves on with every request.
func TestAMigrationThatIsNotListedYetHasItsOwnDeadline(t *testing.T) {
	g := newGate(t, migrationOf("eviction-u1", "u1", v1alpha1.MigrationPending))
	listed := false
	g.Client = interceptor.NewClient(g.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.PodMigrationList); ok && !listed {
				return nil
			}
			return c.List(ctx, list, options...)
		},
	})
	expectLater(t, g.evict(t), "from 2026-11-21T20:10:00Z on it may be evicted all the same")
	g.clock.SetTime(evening.Add(9 * time.Minute))
	expectLater(t, g.evict(t), "from 2026-11-21T20:10:00Z on it may be evicted all the same")
	g.clock.SetTime(evening.Add(10 * time.Minute))
	expectPasses(t, g.evict(t), "has not ended within 10m0s")
}
