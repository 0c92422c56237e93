// Package stack runs Mainspring on a local control plane: etcd, API server, scheduler, controller manager, simulated
// kubelets, and the controller and the agents of simulated nodes as processes of their own, just as a cluster would run
// them.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

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
	// Hollow is the path of a binary of the hollow agents; empty means to build cmd/hollow of the checkout.
	Hollow string
	// ControllerArgs are added to the controller's arguments. A catalogue of machines there is the agents' too.
	ControllerArgs []string
	// APIServerArgs are added to the API server's arguments.
	APIServerArgs []string
	// NodeMonitorGracePeriod is how long a kubelet may be silent; default 40s.
	NodeMonitorGracePeriod time.Duration
	// RealNodes is how many real nodes this machine is beside the simulated ones, each with kubelet, containerd and node agent. It takes root. With
	// any, the charts of the checkout are installed by helm, and every program runs with the arguments and the rights that they give it.
	RealNodes int
	// Clock is used for waiting; default the real one.
	Clock clock.WithTicker
}

// featureGates are those of Karpenter's that a user of the local stack expects to work.
const featureGates = "NodeRepair=true,NodeOverlay=true,StaticCapacity=true,ReservedCapacity=true,SpotToSpotConsolidation=true"

// Stack is a running stack.
type Stack struct {
	plane      *localplane.Plane
	controller *process.Process
	hollow     *process.Process
	nodes      []*realNode
	clock      clock.WithTicker
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
	cores, err := o.divideCores()
	if err != nil {
		return nil, err
	}
	controller, err := o.binary(ctx, controllerProgram, o.Controller)
	if err != nil {
		return nil, err
	}
	hollow, err := o.binary(ctx, hollowProgram, o.Hollow)
	if err != nil {
		return nil, err
	}
	agents, err := o.agentBinaries(ctx)
	if err != nil {
		return nil, err
	}
	plane, err := o.startPlane(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stack{plane: plane, clock: o.Clock}
	if o.RealNodes == 0 {
		err = s.startPrograms(ctx, o, controller, hollow)
	} else {
		err = s.startWithNodes(ctx, o, controller, hollow, agents, cores)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (o Options) startPlane(ctx context.Context) (*localplane.Plane, error) {
	options := localplane.Options{
		Dir: o.Dir, Progress: o.Progress, Scheduler: true, ControllerManager: true, Kwok: true,
		NodeMonitorGracePeriod: o.NodeMonitorGracePeriod, APIServerArgs: o.APIServerArgs,
	}
	bin, err := toolchain.Ensure(ctx, o.Progress, append(options.Tools(), o.nodeTools()...)...)
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

// startPrograms installs what they need, starts both and waits until both are ready.
func (s *Stack) startPrograms(ctx context.Context, o Options, controller, hollow string) error {
	ports, err := process.FreePorts(ctx, 4)
	if err != nil {
		return err
	}
	webhooks := ports[3]
	if err := s.install(ctx, webhooks); err != nil {
		return err
	}
	if s.hollow, err = s.launch(o, hollowProgram, hollow, append([]string{
		"--kubeconfig=" + s.plane.Kubeconfig(), fmt.Sprintf("--health-probe-port=%d", ports[0]),
	}, catalogueArgs(o.ControllerArgs)...), nil); err != nil {
		return err
	}
	if s.controller, err = s.launch(o, controllerProgram, controller, append([]string{
		"--kubeconfig=" + s.plane.Kubeconfig(), "--feature-gates=" + featureGates, "--disable-leader-election",
		fmt.Sprintf("--health-probe-port=%d", ports[1]), fmt.Sprintf("--metrics-port=%d", ports[2]),
		fmt.Sprintf("--webhook-port=%d", webhooks), "--webhook-host=127.0.0.1", "--webhook-namespace=" + systemNamespace,
	}, o.ControllerArgs...), nil); err != nil {
		return err
	}
	if err := waitReady(ctx, o.Clock, s.hollow, readyURL(ports[0])); err != nil {
		return err
	}
	return waitReady(ctx, o.Clock, s.controller, readyURL(ports[1]))
}

func readyURL(port int) string { return fmt.Sprintf("http://127.0.0.1:%d/readyz", port) }

// catalogueArgs are those of the controller's arguments that name the catalogue of machines.
func catalogueArgs(args []string) []string {
	var found []string
	for i, a := range args {
		switch name, _, joined := strings.Cut(strings.TrimLeft(a, "-"), "="); {
		case name != "catalogue-file":
		case joined:
			found = append(found, a)
		case i+1 < len(args):
			found = append(found, a, args[i+1])
		}
	}
	return found
}

func (s *Stack) launch(o Options, p program, binary string, args, env []string) (*process.Process, error) {
	fmt.Fprintf(o.Progress, "starting %s\n", p.title)
	return process.Start(process.Command{Name: p.title, Path: binary, Args: args, Env: env, Log: s.log(p)})
}

func (s *Stack) log(p program) string { return filepath.Join(s.plane.Dir(), "logs", p.name+".log") }

// RESTConfig is the administrator's access to the API server.
func (s *Stack) RESTConfig() *rest.Config { return s.plane.RESTConfig() }

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *Stack) Kubeconfig() string { return s.plane.Kubeconfig() }

// Dir holds everything the stack writes; the logs are in its sub-directory logs.
func (s *Stack) Dir() string { return s.plane.Dir() }

// ControllerLog is the path of the controller's log.
func (s *Stack) ControllerLog() string { return s.log(controllerProgram) }

// HollowLog is the path of the hollow agents' log.
func (s *Stack) HollowLog() string { return s.log(hollowProgram) }

// Watch waits until the context ends, and returns nil then; when a part of the stack ends before that, it returns why,
// with the last lines of its log.
func (s *Stack) Watch(ctx context.Context) error {
	ticker := s.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.controller.Exited():
			return s.controller.Died()
		case <-s.hollow.Exited():
			return s.hollow.Died()
		case <-s.plane.Done():
			return s.plane.Err()
		case <-ticker.C():
			for _, n := range s.nodes {
				if err := n.died(); err != nil {
					return err
				}
			}
		}
	}
}

// Stop ends everything, the controller first.
func (s *Stack) Stop() error {
	var errs []error
	for _, p := range []*process.Process{s.controller, s.hollow} {
		if p != nil {
			errs = append(errs, p.Stop(stopTimeout))
		}
	}
	for _, n := range s.nodes {
		errs = append(errs, n.stop())
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	return nil
}
