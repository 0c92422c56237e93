// Package stack runs Mainspring on a local control plane: etcd, API server, scheduler, controller manager, simulated
// kubelets, and the controller as a process of its own, just as a cluster would run it.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// Options describe a stack. The zero value is usable.
type Options struct {
	// Dir receives everything the stack writes; empty means a temporary directory that Stop removes.
	Dir string
	// Progress receives lines for people.
	Progress io.Writer
	// Controller is the path of a controller binary; empty means to build cmd/controller of the checkout.
	Controller string
	// ControllerArgs are added to the controller's arguments.
	ControllerArgs []string
	// NodeMonitorGracePeriod is how long a kubelet may be silent; default 40s.
	NodeMonitorGracePeriod time.Duration
	// Clock is used for waiting; default the real one.
	Clock clock.WithTicker
}

// featureGates are those of Karpenter's that a user of the local stack expects to work.
const featureGates = "NodeRepair=true,NodeOverlay=true,StaticCapacity=true,ReservedCapacity=true,SpotToSpotConsolidation=true"

// Stack is a running stack.
type Stack struct {
	plane      *localplane.Plane
	controller *process.Process
	logs       string
}

// Start builds what is missing, starts everything, and returns when the controller is ready. When it fails nothing is
// left running.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	binary, err := o.controllerBinary(ctx)
	if err != nil {
		return nil, err
	}
	plane, err := o.startPlane(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stack{plane: plane}
	if err := s.startController(ctx, o, binary); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (o Options) startPlane(ctx context.Context) (*localplane.Plane, error) {
	options := localplane.Options{
		Dir: o.Dir, Progress: o.Progress, Scheduler: true, ControllerManager: true, Kwok: true,
		NodeMonitorGracePeriod: o.NodeMonitorGracePeriod,
	}
	bin, err := toolchain.Ensure(ctx, o.Progress, options.Tools()...)
	if err != nil {
		return nil, fmt.Errorf("providing the control plane's programs: %w", err)
	}
	options.Bin = bin
	// Cancelling ctx ends the start. Later it must not: Stop ends the controller before what it talks to.
	starting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started := context.AfterFunc(ctx, cancel)
	plane, err := localplane.Start(starting, options)
	if err != nil {
		cancel()
		return nil, err
	}
	if !started() {
		return nil, errors.Join(context.Cause(ctx), plane.Stop())
	}
	return plane, nil
}

func (s *Stack) startController(ctx context.Context, o Options, binary string) error {
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	if err := s.plane.ApplyCRDs(ctx, crds...); err != nil {
		return fmt.Errorf("installing CRDs: %w", err)
	}
	s.logs = filepath.Join(s.plane.Dir(), "logs", "controller.log")
	ports, err := process.FreePorts(ctx, 2)
	if err != nil {
		return err
	}
	args := append([]string{
		"--kubeconfig=" + s.plane.Kubeconfig(), "--feature-gates=" + featureGates, "--disable-leader-election",
		fmt.Sprintf("--health-probe-port=%d", ports[0]), fmt.Sprintf("--metrics-port=%d", ports[1]),
	}, o.ControllerArgs...)
	fmt.Fprintf(o.Progress, "starting the controller\n")
	command := process.Command{Name: controllerName, Path: binary, Args: args, Log: s.logs}
	if s.controller, err = process.Start(command); err != nil {
		return err
	}
	return waitReady(ctx, o.Clock, s.controller, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[0]))
}

// RESTConfig is the administrator's access to the API server.
func (s *Stack) RESTConfig() *rest.Config { return s.plane.RESTConfig() }

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *Stack) Kubeconfig() string { return s.plane.Kubeconfig() }

// Dir holds everything the stack writes; the logs are in its sub-directory logs.
func (s *Stack) Dir() string { return s.plane.Dir() }

// ControllerLog is the path of the controller's log.
func (s *Stack) ControllerLog() string { return s.logs }

// Watch waits until the context ends, and returns nil then; when a part of the stack ends before that, it returns why,
// with the last lines of its log.
func (s *Stack) Watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.controller.Exited():
		return s.controller.Died()
	case <-s.plane.Done():
		return s.plane.Err()
	}
}

// Stop ends everything, the controller first.
func (s *Stack) Stop() error {
	var errs []error
	if s.controller != nil {
		errs = append(errs, s.controller.Stop(stopTimeout))
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	return nil
}
