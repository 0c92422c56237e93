// Package apiserver is the real API server, with the project's CRDs, that the tests of one package share.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// running is the plane, once it was started.
var running *localplane.Plane

// Shared is the plane, started by the first test that needs it. It has no controller manager, so nobody makes
// ServiceAccounts, and pods need none. Who uses it has Main run the tests.
var Shared = sync.OnceValues(func() (*localplane.Plane, error) {
	ctx := context.Background()
	options := localplane.Options{APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"}}
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
		return nil, fmt.Errorf("building the control plane: %w", err)
	}
	started, err := localplane.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	running = started // also when the rest fails: Main stops it
	return started, install(ctx, started)
})

// install gives the plane the project's CRDs.
func install(ctx context.Context, p *localplane.Plane) error {
	crds, err := apis.CRDs()
	if err != nil {
		return fmt.Errorf("reading the CRDs: %w", err)
	}
	for _, crd := range crds {
		data, err := yaml.Marshal(crd)
		if err != nil {
			return fmt.Errorf("encoding CRD %s: %w", crd.Name, err)
		}
		if err := p.ApplyCRDs(ctx, data); err != nil {
			return fmt.Errorf("installing CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// Main runs the tests of a package and stops what they have started. Its value is the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if running != nil {
		_ = running.Stop() // the tests are over
	}
	return code
}
