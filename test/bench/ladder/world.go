package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

//go:embed catalogue.yaml
var machines []byte

const (
	buildTimeout = 10 * time.Minute
	startTimeout = 5 * time.Minute
	// gracePeriod is how long a kubelet may be silent. A machine that is busy with a hundred of them is late with leases, and no story
	// is about nodes that die.
	gracePeriod = 10 * time.Minute
	stopTimeout = 20 * time.Second
)

// programs are what the worlds run.
type programs struct{ controller, hollow, stock string }

// world is a cluster in which a story is told.
type world struct {
	client   client.WithWatch
	prepared bool // pods wait for the claim templates of their McKubes
	stop     []func() error
}

func (w *world) close() error {
	var errs []error
	for i := len(w.stop) - 1; i >= 0; i-- {
		errs = append(errs, w.stop[i]())
	}
	return errors.Join(errs...)
}

// catalogueFile writes the machines to a file of the world.
func (w *world) catalogueFile() (string, error) {
	dir, err := os.MkdirTemp("", "mainspring-bench-ladder-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the catalogue: %w", err)
	}
	w.stop = append(w.stop, func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "catalogue.yaml")
	if err := os.WriteFile(path, machines, 0o600); err != nil {
		return "", fmt.Errorf("writing the catalogue: %w", err)
	}
	return path, nil
}

// ours is a world with Mainspring.
func ours(ctx context.Context, p programs) (*world, error) {
	w := &world{prepared: true}
	file, err := w.catalogueFile()
	if err != nil {
		return nil, err
	}
	s, err := stack.Start(ctx, stack.Options{
		Progress: os.Stderr, NodeMonitorGracePeriod: gracePeriod, Controller: p.controller, Hollow: p.hollow, ControllerArgs: []string{"--catalogue-file=" + file, "--enable-profiling"},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting Mainspring: %w", err), w.close())
	}
	w.stop = append(w.stop, s.Stop)
	if err := w.connect(s.RESTConfig()); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// connect builds the client. It asks as often as it likes: a storm must strike at once, not at client-go's pace of five
// requests a second.
func (w *world) connect(config *rest.Config) (err error) {
	config.QPS = -1
	if w.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return fmt.Errorf("building the client: %w", err)
	}
	return nil
}

// stock is a world with upstream's Karpenter and the seed's rules.
func stock(ctx context.Context, p programs) (*world, error) {
	w := &world{}
	if p.stock == "" {
		var err error
		if p.stock, err = w.buildStock(ctx); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if err := w.startStock(ctx, p); err != nil {
		return nil, errors.Join(fmt.Errorf("starting stock Karpenter: %w", err), w.close())
	}
	return w, nil
}

// buildStock builds stock Karpenter into a directory of the world.
func (w *world) buildStock(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "mainspring-bench-stock-")
	if err != nil {
		return "", fmt.Errorf("making a directory for stock Karpenter: %w", err)
	}
	w.stop = append(w.stop, func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "stock")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./test/bench/ladder/stock").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building stock Karpenter: %w\n%s", err, out)
	}
	return path, nil
}

func (w *world) startStock(ctx context.Context, p programs) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	file, err := w.catalogueFile()
	if err != nil {
		return err
	}
	plane, err := w.plane(ctx)
	if err != nil {
		return err
	}
	if err := w.connect(plane.RESTConfig()); err != nil {
		return err
	}
	ports, err := process.FreePorts(ctx, 3)
	if err != nil {
		return err
	}
	if err := w.launch("the hollow agents", p.hollow, plane, nil,
		"--kubeconfig="+plane.Kubeconfig(), "--catalogue-file="+file, fmt.Sprintf("--health-probe-port=%d", ports[0])); err != nil {
		return err
	}
	if err := w.launch("stock Karpenter", p.stock, plane, []string{"KUBECONFIG=" + plane.Kubeconfig(), "CATALOGUE_FILE=" + file, "SYSTEM_NAMESPACE=kube-system"},
		"--disable-leader-election", fmt.Sprintf("--health-probe-port=%d", ports[1]), fmt.Sprintf("--metrics-port=%d", ports[2])); err != nil {
		return err
	}
	return w.startSeed()
}

func (w *world) plane(ctx context.Context) (*localplane.Plane, error) {
	options := localplane.Options{Progress: os.Stderr, Scheduler: true, ControllerManager: true, Kwok: true, NodeMonitorGracePeriod: gracePeriod}
	bin, err := toolchain.Ensure(ctx, os.Stderr, options.Tools()...)
	if err != nil {
		return nil, fmt.Errorf("providing the control plane's programs: %w", err)
	}
	options.Bin = bin
	plane, err := localplane.Start(context.WithoutCancel(ctx), options)
	if err != nil {
		return nil, err
	}
	w.stop = append(w.stop, plane.Stop)
	crds, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	if err := plane.ApplyCRDs(ctx, crds...); err != nil {
		return nil, fmt.Errorf("installing CRDs: %w", err)
	}
	return plane, nil
}

func (w *world) launch(name, path string, plane *localplane.Plane, env []string, args ...string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	child, err := process.Start(process.Command{
		Name: name, Path: path, Args: args, Env: append(os.Environ(), env...), Log: filepath.Join(plane.Dir(), "logs", filepath.Base(path)+".log"),
	})
	if err != nil {
		return err
	}
	w.stop = append(w.stop, func() error { return child.Stop(stopTimeout) })
	return nil
}

func (w *world) startSeed() error {
	list, err := catalogue.Parse("catalogue.yaml", machines)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		newSeed(w.client, list).run(ctx)
	}()
	w.stop = append(w.stop, func() error {
		cancel()
		<-done
		return nil
	})
	return nil
}

// register lets the client know our kinds.
func register() error {
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, mcoperatorv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return fmt.Errorf("building the scheme: %w", err)
		}
	}
	return nil
}
