package operator

import (
	"context"
	"net/http/httptest"
	"testing"
)

func TestStateSynced(t *testing.T) {
	elected, synced := make(chan struct{}), false
	check := stateSynced(elected, func(context.Context) bool { return synced })
	req := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)

	if err := check(req); err != nil {
		t.Errorf("a replica that stands by is not ready: %v", err)
	}
	close(elected)
	if err := check(req); err == nil {
		t.Error("a leader without cluster state is ready")
	}
	synced = true
	if err := check(req); err != nil {
		t.Errorf("a leader with cluster state is not ready: %v", err)
	}
	synced = false
	if err := check(req); err != nil {
		t.Errorf("readiness was lost while a node was launching: %v", err)
	}
}
