// Package apiserver is the real API server, with the project's CRDs, that the tests of one package share.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test/batch"
	"github.com/mainspring-rt/mainspring/pkg/test/timing"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// running is the plane, once it was started.
var running *localplane.Plane

// Shared is the plane, started by the first test that needs it. It has no controller manager, so nobody makes
// ServiceAccounts, and pods need none. Who uses it has Main run the tests.
var Shared = sync.OnceValues(func() (*localplane.Plane, error) {
	ctx := context.Background()
	if err := collectLess(); err != nil {
		return nil, err
	}
	options := localplane.Options{APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount", localplane.WithoutFairness}}
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
		return nil, fmt.Errorf("building the control plane: %w", err)
	}
	ended := timing.Start(timing.ControlPlane, filepath.Base(os.Args[0]))
	started, err := localplane.Start(ctx, options)
	ended()
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	running = started // also when the rest fails: Main stops it
	return started, install(ctx, started)
})

// Scheme knows the types of Kubernetes and of McKube. Nobody may change it.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var scheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	return s, nil
})

// Config reaches the shared plane as an administrator, as fast as it answers.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	p, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	return configOf(p)
}

func configOf(p *localplane.Plane) *rest.Config {
	config := p.RESTConfig()
	config.QPS = -1
	return config
}

// install gives the plane the project's CRDs, all at once: the API server serves each a moment after it has it.
func install(ctx context.Context, p *localplane.Plane) error {
	crds, err := apis.CRDs()
	if err != nil {
		return fmt.Errorf("reading the CRDs: %w", err)
	}
	manifests := make([][]byte, 0, len(crds))
	for _, crd := range crds {
		data, err := yaml.Marshal(crd)
		if err != nil {
			return fmt.Errorf("encoding CRD %s: %w", crd.Name, err)
		}
		manifests = append(manifests, data)
	}
	if err := p.ApplyCRDs(ctx, manifests...); err != nil {
		return fmt.Errorf("installing the CRDs: %w", err)
	}
	return nil
}

// heapGrowth is by how many percent a heap grows between two garbage collections, of the control plane and of the tests. Both write far
// more than they keep: with Go's default of 100 a quarter of what the API server computes is garbage collection.
const heapGrowth = 200

// collectLess has this process and the programs that it starts collect garbage less often, unless the user says how often.
func collectLess() error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	debug.SetGCPercent(heapGrowth)
	if err := os.Setenv("GOGC", strconv.Itoa(heapGrowth)); err != nil {
		return fmt.Errorf("setting how often programs collect garbage: %w", err)
	}
	return nil
}

// Main runs the tests of a package as a batch, and stops what they have started. Its value is the exit code.
func Main(m *testing.M) int {
	if err := batch.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return MainScheduledAsUsual(m)
}

// MainScheduledAsUsual is Main for tests that schedule tasks of their own.
func MainScheduledAsUsual(m *testing.M) int {
	code := m.Run()
	if running != nil {
		_ = running.Stop() // the tests are over
	}
	return code
}
