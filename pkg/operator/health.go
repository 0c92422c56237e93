package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
)

// syncWait bounds how long a readiness probe waits for the caches.
const syncWait = 2 * time.Second

// addReadiness adds what /healthz and /readyz answer. Alive: the process serves. Ready: the caches
// have synced and, once this replica leads, its cluster state has been complete at least once; a
// replica that stands by is ready as soon as its caches are, or a rolling update would never end.
func addReadiness(mgr manager.Manager, leads <-chan struct{}, cluster *state.Cluster, store *rtstate.Store) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	checks := map[string]healthz.Checker{
		"caches":        cachesSynced(mgr),
		"cluster-state": stateSynced(leads, cluster.Synced),
		"rt-state":      rtStateComplete(store),
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("adding the readiness check %q: %w", name, err)
		}
	}
	return nil
}

// leading is closed once this replica leads; without leader election it does from the beginning, also
// while the manager is still starting.
func leading(ctx context.Context, mgr manager.Manager) <-chan struct{} {
	if !options.FromContext(ctx).DisableLeaderElection {
		return mgr.Elected()
	}
	always := make(chan struct{})
	close(always)
	return always
}

func cachesSynced(mgr manager.Manager) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), syncWait)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches have not synced")
		}
		return nil
	}
}

// rtStateComplete latches too: a claim whose node has just gone makes the state incomplete for a moment.
// Every replica has it, because every replica answers webhooks.
func rtStateComplete(store *rtstate.Store) healthz.Checker {
	var once atomic.Bool
	return func(*http.Request) error {
		if once.Load() {
			return nil
		}
		if err := store.Synced(); err != nil {
			return fmt.Errorf("real-time state has not synced: %w", err)
		}
		once.Store(true)
		return nil
	}
}

// stateSynced latches: the state is incomplete for a moment whenever a node is being launched, and
// that does not make the controller unable to work.
func stateSynced(elected <-chan struct{}, synced func(context.Context) bool) healthz.Checker {
	var once atomic.Bool
	return func(req *http.Request) error {
		select {
		case <-elected:
		default:
			return nil
		}
		if once.Load() {
			return nil
		}
		if !synced(req.Context()) {
			return errors.New("cluster state has not synced")
		}
		once.Store(true)
		return nil
	}
}
