package orchestration_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// running is the plane, once it was started.
var running *localplane.Plane

// plane is a real API server with our CRDs, started by the first test that needs it.
var plane = sync.OnceValues(func() (*localplane.Plane, error) {
	ctx := context.Background()
	options := localplane.Options{APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"}} // nobody makes them here
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
		return nil, err
	}
	started, err := localplane.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	running = started
	crds, err := apis.CRDs()
	if err != nil {
		return started, err
	}
	for _, crd := range crds {
		data, err := yaml.Marshal(crd)
		if err != nil {
			return started, err
		}
		if err := started.ApplyCRDs(ctx, data); err != nil {
			return started, err
		}
	}
	return started, nil
})

var scheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		_ = running.Stop() // the tests are over
	}
	os.Exit(code)
}
