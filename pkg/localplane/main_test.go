package localplane_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// bin holds the programs of every test's plane.
var bin toolchain.Paths

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		os.Exit(runParent(dir))
	}
	everything := localplane.Options{Scheduler: true, ControllerManager: true, Kwok: true}
	paths, err := toolchain.Ensure(context.Background(), os.Stderr, everything.Tools()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "providing the control plane's programs:", err)
		os.Exit(1)
	}
	bin = paths
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the shared plane:", err)
		code = 1
	}
	os.Exit(code)
}

// shared is a plane with every component, for the tests that only use one. It is started by the
// first of them. Nodes that fall silent are noticed after 6 s.
var shared struct {
	sync.Once
	plane *localplane.Plane
	err   error
}

func sharedPlane(t *testing.T) *localplane.Plane {
	t.Helper()
	shared.Do(func() {
		shared.plane, shared.err = localplane.Start(context.Background(), localplane.Options{
			Bin: bin, Scheduler: true, ControllerManager: true, Kwok: true,
			NodeMonitorGracePeriod: 6 * time.Second,
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane
}

func stopShared() error {
	if shared.plane == nil {
		return nil
	}
	return shared.plane.Stop()
}
